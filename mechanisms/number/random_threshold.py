"""A number against a random public threshold: is it above?"""

from __future__ import annotations

from collections.abc import Sequence

from mechanisms.arrays import ArrayLike, Floats, Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.frozen import frozen
from mechanisms.number import grid
from mechanisms.number.mechanism import AnswerMechanism, answer_noise
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context
    from mechanisms.number.answers import NumericEstimates


@frozen
class RandomThreshold(AnswerMechanism):
    """Say, by randomized response, whether a number is above a random public threshold.

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
    For means up to epsilon 1.9, and for quantiles with intervals; above that the Hybrid Mechanism
    has the better mean. It needs a coin that both sides compute.

    References
    ----------
    Randomized response: S. L. Warner, JASA 60(309), 1965. Strata as treatments: J. Neyman, "On the
    Application of Probability Theory to Agricultural Experiments" (1923), Statistical Science 5(4),
    1990, section 9.

    Examples
    --------
    >>> import numpy as np
    >>> from mechanisms.testing import SeededSource
    >>> chains = np.arange(6, dtype=np.uint64).reshape(3, 2)
    >>> RandomThreshold(1.0).report(np.array([0.1, 0.5, 0.9]), SeededSource(1), chains).shape
    (3, 1)
    """

    epsilon: Epsilon
    missing: bool = False
    metric: str = ""

    name = "threshold"
    gives = "mean, quantiles and distribution"

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return 1 where the number is above the chain's threshold, 2 where it is missing."""
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return grid.MISSING
        return int(symbol > grid.threshold_of(self.coin(chain)))

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        values, gone = grid.unit_array(symbols, self.missing)
        thresholds = grid.thresholds_of(self.coins_of(chains))
        return np.where(gone, grid.MISSING, values > thresholds).astype(np.int64)

    @property
    def strata(self) -> int:
        """Reports are counted by the bin of their threshold."""
        return grid.BINS

    @property
    def joins(self) -> Sequence[Ints]:
        return grid.bin_starts(grid.BINS)

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints:
        return (self.coins_of(chains) >> np.uint64(58)).astype(np.int64)

    def _numeric(
        self, table: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.answers import threshold_estimates

        cells = table.reshape(len(table), grid.BINS, -1)
        return threshold_estimates(cells, self.pairs(), low, high, quantiles, strata=strata)

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        strata = 1 << (min(max(n // grid.EXPECTED_REPORTS, 1), grid.BINS).bit_length() - 1)
        pair, symbols = self.probabilities(level)[0], 2 + self.missing

        def variance(x: Floats) -> float:
            above = np.clip(x * strata - np.arange(strata)[:, None], 0.0, 1.0).mean(axis=1)
            between = float((above * (1 - above)).mean())
            noise = answer_noise(pair, symbols, float(x.mean()))
            # Reports fall into strata at random, which costs the number of strata over n.
            return (noise + between) * (1 + (strata - 1) / n) - float(x.var())

        if values is not None:
            return variance(np.asarray(values, dtype=np.float64))
        # The worst values of a given mean are uniform up to a point, the rest being at the other
        # end.
        middles = (np.arange(strata) + 0.5) / strata
        shifts = np.arange(-10, 11) / 10 if self.missing else np.zeros(1)
        return max(variance(np.clip(middles - shift, 0.0, 1.0)) for shift in shifts)

    def worst_variance(self, level: int) -> float:
        """Return that of the worst data and many reports, by the standard library alone."""
        pair, symbols = self.probabilities(level)[0], 2 + self.missing
        # Uniform up to a point, the rest at 0 or at 1: F(x) = x + s has ∫ F(1 − F) − Var(X) of it.
        return max(
            answer_noise(pair, symbols, mean) + rest
            for mean, rest in (_uniform_and_atom(step / 20) for step in range(-20, 21))
        )

    def _said(self, answer: int, chain: bytes, context: Context) -> str:
        side = "above" if answer else "at most"
        return f"{side} about {context.number(grid.threshold_of(self.coin(chain)))}"


def _uniform_and_atom(shift: float) -> tuple[float, float]:
    """Return mean and E|X − X′|/2 − Var(X) of numbers with the distribution function x + shift."""
    size = abs(shift)
    length = 1 - size
    mean, square = length**2 / 2, length**3 / 3
    apart = length**2 / 2 - length**3 / 3
    return (mean if shift >= 0 else 1 - mean), apart - (square - mean**2)
