# mypy: disable-error-code="no-any-return"
"""A number against a random public threshold: is it above?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms import coins
from mechanisms.chains.chain import Prior
from mechanisms.chains.symbols import symbol_chain
from mechanisms.frozen import frozen
from mechanisms.ladders import SymbolLadder
from mechanisms.levels import certify, check_ladder
from mechanisms.number.grid import BINS, check_unit, threshold_of, thresholds_of, unit_array
from mechanisms.randomness import Source
from mechanisms.single import NumberMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The symbol of a missing value; 0 is below the threshold (or at it), 1 above.
MISSING = 2


@frozen
class RandomThreshold(NumberMechanism):
    """Say, by randomized response, whether a number is above a random public threshold.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    missing : bool
        Whether a value can be missing, which is then a third answer.
    metric : str
        Separates the thresholds of different metrics.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is p/q. The threshold is a hash of the chain id, which is drawn before the value is looked at.

    Relaxation
    ----------
    Exact, as binary randomized response (of three answers where a value can be missing); the
    threshold stays the same along the chain.

    Utility
    -------
    On [-1, 1], n times the variance of the stratified mean is 4f(ε) + E|X−X′| − Var(X) to
    leading order, f(ε) = e^ε/(e^ε−1)²: at most 4f(ε) + 1/3, and on no data more than one-bit
    response. The answers by threshold are also the distribution function.

    Use
    ---
    For means up to epsilon 1.9, and for quantiles with intervals that hold for every distribution;
    above that the Hybrid Mechanism has the better mean. It needs a coin that both sides compute.

    References
    ----------
    Randomized response: S. L. Warner, JASA 60(309), 1965. Strata as treatments: J. Neyman, "On the
    Application of Probability Theory to Agricultural Experiments" (1923), Statistical Science 5(4),
    1990, section 9.

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.testing import SeededSource
    >>> threshold = RandomThreshold(epsilon=1.0)
    >>> chains = np.arange(6, dtype=np.uint64).reshape(3, 2)
    >>> threshold.randomize(np.array([0.1, 0.5, 0.9]), chains, SeededSource(1)).shape
    (3, 1)
    """

    missing: bool = False
    metric: str = ""

    def _build(self, micro: int) -> ThresholdLadder:
        return threshold_ladder(self.missing, [micro], self.metric)


@frozen
class ThresholdLadder(SymbolLadder):
    """One bit about a number in [0, 1], against the threshold of its chain."""

    name = "threshold"

    @property
    def missing(self) -> bool:
        """Whether a value can be missing, which is the third symbol."""
        return self.chain.size == 3

    @property
    def count_length(self) -> int:
        """A count for each bin of thresholds and each symbol."""
        return BINS * self.chain.size

    @cached_property
    def _domain(self) -> int:
        return coins.coin_domain(self.metric)

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return 1 where the number is above the chain's threshold, 2 where it is missing."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return MISSING
        return int(symbol > threshold_of(coins.hash_id(chain, self._domain)))

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return what the threshold says, with weight one."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return ((MISSING, 1),)
        return ((int(symbol > threshold_of(coins.hash_id(chain, self._domain))), 1),)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return symbols for ``(n,)`` numbers, NaN being a missing one."""
        import numpy as np

        values, gone = unit_array(symbols, self.missing)
        thresholds = thresholds_of(coins.hash_ids(chains, self._domain))
        return np.where(gone, MISSING, values > thresholds).astype(np.int64)

    def bins(self, chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the bin, in [0, 64), of each chain's threshold."""
        import numpy as np

        return (coins.hash_ids(chains, self._domain) >> np.uint64(58)).astype(np.int64)

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at the bin of its threshold, then its symbol."""
        return self.bins(chains) * self.chain.size + reports


def threshold_ladder(missing: bool, ladder: Sequence[int], metric: str) -> ThresholdLadder:
    """Build a ladder of random thresholds."""
    rungs = check_ladder(ladder)
    chain = symbol_chain(3 if missing else 2, rungs)
    return ThresholdLadder(metric, certify(rungs, [rung.p / rung.q for rung in chain.exact]), chain)
