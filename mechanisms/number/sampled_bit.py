# mypy: disable-error-code="no-any-return"
"""One sampled bit of a number, which bit being public."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms import coins
from mechanisms.chains.chain import Prior
from mechanisms.chains.symbols import symbol_chain
from mechanisms.errors import check_int
from mechanisms.frozen import frozen
from mechanisms.ladders import SymbolLadder
from mechanisms.levels import GRAINS, certify, check_ladder
from mechanisms.number.grid import (
    MAX_BITS,
    check_unit,
    exponent_of,
    exponents_of,
    round_to_grid,
    rounds_to_grid,
    split_grid,
    unit_array,
)
from mechanisms.number.random_threshold import MISSING
from mechanisms.randomness import Source
from mechanisms.single import NumberMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class SampledBit(NumberMechanism):
    """Report one bit of a number by randomized response; which bit is a public coin.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount.
    bits : int
        In [1, 32]; the number is first rounded at random to a grid of 2**bits points.
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
    Any two numbers, or a number and a missing value, are neighbours; the largest likelihood ratio
    is p/q. The coin is a hash of the chain id, which is drawn before the value is looked at.

    Relaxation
    ----------
    Exact, as binary randomized response (of three answers where a value can be missing); the
    bit that is asked for stays the same along the chain.

    Utility
    -------
    A bit is sampled with its share of the range, w_i. On [-1, 1], n times the variance of the
    stratified mean is 4 Σ w_i (π_i(1−π_i) + f(ε)) − Var(x), π_i the means of the bits and
    f(ε) = e^ε/(e^ε−1)².

    Use
    ---
    Where the means of bits are wanted besides that of the number, up to epsilon 2; from then on
    several sampled bits. For the mean alone, the random threshold.

    References
    ----------
    G. Cormode, I. L. Markov, "Bit-efficient Numerical Aggregation and Stronger Privacy for Trust in
    Federated Analytics", arXiv:2108.01521 (bit-pushing).

    Examples
    --------
    >>> SampledBit(epsilon=2.0, bits=10).certified
    2000000
    """

    bits: int
    missing: bool = False
    metric: str = ""

    def _build(self, micro: int) -> SampledBitLadder:
        return sampled_bit_ladder(self.bits, self.missing, [micro], self.metric)


@frozen
class SampledBitLadder(SymbolLadder):
    """One of the ``bits`` bits of a number in [0, 1], chosen by the chain's coin."""

    name = "sampled_bit"

    bits: int

    @property
    def missing(self) -> bool:
        """Whether a value can be missing, which is the third symbol."""
        return self.chain.size == 3

    @property
    def count_length(self) -> int:
        """A count for each bit, most significant first, and each symbol."""
        return self.bits * self.chain.size

    @cached_property
    def _domain(self) -> int:
        return coins.coin_domain(self.metric)

    def exponent(self, chain: bytes) -> int:
        """Return the exponent of the bit that a chain is about, 0 being the least significant."""
        return exponent_of(coins.hash_id(chain, self._domain), self.bits)

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return the chain's bit of the number, rounded to the grid; 2 where it is missing."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return MISSING
        return round_to_grid(symbol, self.bits, source) >> self.exponent(chain) & 1

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the chain's bit of both neighbouring grid points, with their weights."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return ((MISSING, 1),)
        below, grains = split_grid(symbol, self.bits)
        exponent = self.exponent(chain)
        return (
            (below >> exponent & 1, GRAINS - grains),
            ((below + 1) >> exponent & 1, grains),
        )

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return symbols for ``(n,)`` numbers, NaN being a missing one."""
        import numpy as np

        values, gone = unit_array(symbols, self.missing)
        points = rounds_to_grid(np.where(gone, 0.0, values), self.bits, source)
        exponents = exponents_of(coins.hash_ids(chains, self._domain), self.bits)
        return np.where(gone, MISSING, points >> exponents & 1)

    def indices(self, chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the index of each chain's bit, 0 being the most significant."""
        return self.bits - 1 - exponents_of(coins.hash_ids(chains, self._domain), self.bits)

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at its bit, then its symbol."""
        return self.indices(chains) * self.chain.size + reports


def check_bits(bits: int) -> None:
    """Refuse a number of bits outside [1, 32]."""
    check_int("bits", bits, 1, MAX_BITS)


def sampled_bit_ladder(
    bits: int, missing: bool, ladder: Sequence[int], metric: str
) -> SampledBitLadder:
    """Build a ladder of sampled bits."""
    check_bits(bits)
    rungs = check_ladder(ladder)
    chain = symbol_chain(3 if missing else 2, rungs)
    amounts = certify(rungs, [rung.p / rung.q for rung in chain.exact])
    return SampledBitLadder(metric, amounts, chain, bits)
