"""Several sampled bits of a number, which bits being public."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.errors import ParameterError, check_int
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS
from mechanisms.number.grid import (
    check_unit,
    exponent_of,
    exponents_of,
    round_to_grid,
    rounds_to_grid,
    split_grid,
    unit_array,
)
from mechanisms.number.random_threshold import MISSING
from mechanisms.number.sampled_bit import check_bits
from mechanisms.randomness import Source
from mechanisms.single import NumberMechanism
from mechanisms.vector.draws import DrawsLadder, coin, coin_column, packed_chain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A report has at most so many answers.
MAX_DRAWS = 32


@frozen
class SampledBits(NumberMechanism):
    """Report several bits of a number by randomized response; which bits are public coins.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40 draws], the nominal amount.
    bits : int
        In [1, 32]; for every answer the number is first rounded at random to a grid of 2**bits
        points.
    draws : int
        In [1, 32], the number of answers, each at epsilon / draws.
    missing : bool
        Whether a value can be missing, which is then a third answer.
    metric : str
        Separates the coins of different metrics.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours. The answers are drawn
    independently, a bit may be drawn twice, and all answers can differ: the largest likelihood
    ratio is exactly (p/q)**draws. The coins are hashes of the chain id, which is drawn before the
    value is looked at.

    Relaxation
    ----------
    Each answer is relaxed as randomized response over two or three symbols.

    Utility
    -------
    On [-1, 1], without strata, a user's variance is (C² − x²) / k with
    C = (e^(ε/k)+1)/(e^(ε/k)−1), k the number of draws.

    Use
    ---
    One bit is best up to epsilon 2, two at 4, four at 8 (worst case). For the mean alone other
    mechanisms are better there; this one gives the means of the bits.

    References
    ----------
    G. Cormode, I. L. Markov, "Bit-efficient Numerical Aggregation and Stronger Privacy for Trust in
    Federated Analytics", arXiv:2108.01521 (bit-pushing).

    Examples
    --------
    >>> SampledBits(epsilon=4.0, bits=10, draws=2).certified
    4000000
    """

    bits: int
    draws: int
    missing: bool = False
    metric: str = ""

    def _build(self, micro: int) -> SampledBitsLadder:
        return sampled_bits_ladder(self.bits, self.draws, self.missing, [micro], self.metric)


@frozen
class SampledBitsLadder(DrawsLadder):
    """Some of the ``bits`` bits of a number in [0, 1], chosen by the chain's coins."""

    name = "sampled_bits"

    bits: int

    @property
    def missing(self) -> bool:
        """Whether a value can be missing, which is the third symbol."""
        return self.chain.single.size == 3

    @property
    def count_length(self) -> int:
        """A count for each bit, most significant first, and each symbol."""
        return self.bits * self.chain.single.size

    def exponents(self, seed: int) -> list[int]:
        """Return the exponents of the bits asked for, 0 being the least significant."""
        return [exponent_of(coin(seed, place), self.bits) for place in range(self.count)]

    def encode(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the bits asked for, each of a number rounded anew; 2 where it is missing."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return [MISSING] * self.count
        return [
            round_to_grid(symbol, self.bits, source) >> exponent & 1
            for exponent in self.exponents(seed)
        ]

    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        """Return the bits asked for of both neighbouring grid points, with their weights."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return [((MISSING, 1),)] * self.count
        return [bit_prior(symbol, self.bits, exponent) for exponent in self.exponents(seed)]

    def encode_many(
        self, symbols: Any, seeds: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return ``(n, count)`` symbols for ``(n,)`` numbers, NaN being a missing one."""
        import numpy as np

        values, gone = unit_array(symbols, self.missing)
        if values.ndim != 1:
            raise ParameterError(f"values must be one-dimensional, not {values.ndim}-dimensional")
        values = np.where(gone, 0.0, values)
        out = np.empty((len(values), self.count), dtype=np.int64)
        for place in range(self.count):
            points = rounds_to_grid(values, self.bits, source)
            out[:, place] = points >> exponents_of(coin_column(seeds, place), self.bits) & 1
        out[gone] = MISSING
        return out

    def cells(self, answers: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count an answer at its bit, then its symbol."""
        import numpy as np

        columns = [exponents_of(coin_column(seeds, i), self.bits) for i in range(self.count)]
        indices = self.bits - 1 - np.stack(columns, axis=1)
        return indices * self.chain.single.size + answers


def bit_prior(value: float, bits: int, exponent: int) -> Prior:
    """Return a bit of both grid points around a value in [0, 1], with their weights."""
    below, grains = split_grid(value, bits)
    low, high = below >> exponent & 1, (below + 1) >> exponent & 1
    if low == high or not grains:
        return ((low, 1),)
    return ((low, GRAINS - grains), (high, grains))


def sampled_bits_ladder(
    bits: int, count: int, missing: bool, ladder: Sequence[int], metric: str
) -> SampledBitsLadder:
    """Build a ladder of several sampled bits."""
    check_bits(bits)
    check_int("count", count, 1, MAX_DRAWS)
    chain, amounts = packed_chain(3 if missing else 2, count, ladder)
    return SampledBitsLadder(metric, amounts, chain, bits)
