# mypy: disable-error-code="no-any-return"
"""A number as one bit whose mean it is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.chains.symbols import symbol_chain
from mechanisms.frozen import frozen
from mechanisms.ladders import SymbolLadder
from mechanisms.levels import certify, check_ladder
from mechanisms.number import inputs
from mechanisms.number.laws import Law, Shape
from mechanisms.randomness import Source
from mechanisms.single import NumberMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class DuchiOneBit(NumberMechanism):
    """Round a number in [0, 1] at random to 0 or 1, and report that by randomized response.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    missing : bool
        Whether a value can be missing, which is then a third answer.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is p/q.

    Relaxation
    ----------
    Exact, as binary randomized response (of three answers where a value can be missing).

    Utility
    -------
    The mean is unbiased. On [-1, 1], n times its variance at x is C² − x², C = (e^ε + 1)/(e^ε − 1).

    Use
    ---
    Where there is no public coin and epsilon is below 0.6; otherwise the random threshold, whose
    variance is on no data larger, or the Hybrid Mechanism.

    References
    ----------
    J. C. Duchi, M. I. Jordan, M. J. Wainwright, "Minimax Optimal Procedures for Locally Private
    Estimation", JASA 113(521), 2018, section 3.2.

    Examples
    --------
    >>> duchi = DuchiOneBit(epsilon=1.0)
    >>> round(duchi.p, 4), duchi.certified
    (0.7311, 1000000)
    """

    missing: bool = False

    def _build(self, micro: int) -> DuchiLadder:
        return duchi_ladder(self.missing, [micro], "")


@frozen
class DuchiLadder(SymbolLadder):
    """One bit with the mean of a number in [0, 1], relaxed along a ladder."""

    name = "duchi"

    @property
    def missing(self) -> bool:
        """Whether a value can be missing, which is the third symbol."""
        return self.chain.size == 3

    @property
    def count_length(self) -> int:
        """One count a symbol."""
        return self.chain.size

    @property
    def shape(self) -> Shape:
        """Two inputs, two ends."""
        return Shape(2, 0, True, self.missing)

    @cached_property
    def laws(self) -> tuple[Law, ...]:
        """The exact probabilities of every rung, weakest first."""
        none = Fraction(0)
        return tuple(
            Law(none, none, none, rung.p, rung.q, rung.q, rung.p, rung.q)
            for rung in self.chain.exact
        )

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return 0 or 1 with the number as its mean; 2 where it is missing."""
        return inputs.encode(symbol, 1, self.missing, source)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return 0 and 1 with their weights."""
        return inputs.prior(symbol, 1, self.missing)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return symbols for ``(n,)`` numbers, NaN being a missing one."""
        return inputs.encode_many(symbols, 1, self.missing, source)

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at its symbol."""
        return reports


def duchi_ladder(missing: bool, ladder: Sequence[int], metric: str) -> DuchiLadder:
    """Build a ladder of Duchi's one bit."""
    rungs = check_ladder(ladder)
    chain = symbol_chain(3 if missing else 2, rungs)
    return DuchiLadder(metric, certify(rungs, [rung.p / rung.q for rung in chain.exact]), chain)
