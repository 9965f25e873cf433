"""All bits of a number, the epsilon split over them so that the mean varies least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mechanisms.chains.bits import BitChain, symmetric_bit
from mechanisms.chains.chain import Prior
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.ladders import VectorLadder
from mechanisms.levels import GRAINS, MAX_DECISION_EPSILON, certify, check_ladder
from mechanisms.number.allocation import bit_weights, split_epsilon
from mechanisms.number.grid import check_unit, round_to_grid, rounds_to_grid, split_grid, unit_array
from mechanisms.number.sampled_bit import check_bits
from mechanisms.randomness import Source
from mechanisms.single import NumberMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class SplitBits(NumberMechanism):
    """Report all bits of a number, epsilon split over them so that the mean varies least.

    Parameters
    ----------
    epsilon : float
        At least 1e-6, the nominal amount; at most what gives the most significant bit 40.
    bits : int
        In [1, 32]; the number is first rounded at random to a grid of 2**bits points.
    missing : bool
        Whether a value can be missing; then one more bit, which weighs as much as the most
        significant one, says whether it is there.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; all bits can differ, and the
    largest likelihood ratio is the product of theirs.

    Relaxation
    ----------
    Exact, every bit by a flip of its own that does not look at it.

    Utility
    -------
    On [-1, 1] a user's variance is 4 Σ w_i² f(ε_i), w_i = 2^(l−i)/(2^l−1) and
    f(ε) = e^ε/(e^ε−1)²: more than one-bit response for every l > 1 up to epsilon 2. For the means
    of bits, not for that of the number.

    Use
    ---
    For the means of all bits from every report. For the mean of the number itself, any of the
    others: the Hybrid Mechanism varies less at every epsilon.

    References
    ----------
    After "Bit-aware Randomized Response for Local Differential Privacy in Federated Learning"
    (BitRand), submitted to ICLR 2022, with a split of epsilon that is certified.

    Examples
    --------
    >>> split = SplitBits(epsilon=1.0, bits=4)
    >>> [round(share, 4) for share in split.shares]
    [0.4392, 0.2767, 0.1743, 0.1098]
    """

    bits: int
    missing: bool = False

    def _build(self, micro: int) -> SplitBitsLadder:
        return split_bits_ladder(self.bits, self.missing, [micro], "")

    @property
    def shares(self) -> tuple[float, ...]:
        """The nominal epsilon of each bit, most significant first."""
        micro = Fraction(self.ladder.nominal(0), MICRO)
        return tuple(float(share) for share in shares_of(self.bits, self.missing, micro))


@frozen
class SplitBitsLadder(VectorLadder):
    """The ``bits`` bits of a number in [0, 1], and a presence bit where it can be missing."""

    name = "split_bits"

    bits: int

    @property
    def missing(self) -> bool:
        """Whether a value can be missing; then a last bit says whether it is there."""
        return self.chain.width > self.bits

    def encode(self, symbol: Any, pseudonym: bytes, source: Source) -> int:
        """Return the bits of the number, rounded to the grid, most significant lowest."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return 0
        return self._arrange(round_to_grid(symbol, self.bits, source))

    def prior(self, symbol: Any, pseudonym: bytes) -> Prior:
        """Return the bits of both neighbouring grid points, with their weights."""
        check_unit(symbol, self.missing)
        if symbol is None:
            return ((0, 1),)
        below, grains = split_grid(symbol, self.bits)
        if not grains:
            return ((self._arrange(below), 1),)
        return ((self._arrange(below), GRAINS - grains), (self._arrange(below + 1), grains))

    def _arrange(self, point: int) -> int:
        reversed_bits = int(f"{point:0{self.bits}b}"[::-1], 2)
        return reversed_bits | 1 << self.bits if self.missing else reversed_bits

    def encode_many(
        self, symbols: Any, pseudonyms: NDArray[np.uint64], source: Source
    ) -> NDArray[np.uint64]:
        """Return packed bits for ``(n,)`` numbers, NaN being a missing one."""
        import numpy as np

        values, gone = unit_array(symbols, self.missing)
        points = rounds_to_grid(np.where(gone, 0.0, values), self.bits, source).astype(np.uint64)
        out = np.zeros(len(points), dtype=np.uint64)
        for index in range(self.bits):
            bit = points >> np.uint64(self.bits - 1 - index) & np.uint64(1)
            out |= bit << np.uint64(index)
        if self.missing:
            out |= np.uint64(1 << self.bits)
            out[gone] = 0
        return out.reshape(-1, 1)


def shares_of(bits: int, missing: bool, epsilon: Fraction) -> tuple[Fraction, ...]:
    """Return the share of each bit; a presence bit weighs as much as the most significant."""
    weights = bit_weights(bits)
    return split_epsilon(epsilon, (*weights, weights[0]) if missing else weights)


def split_bits_ladder(
    bits: int, missing: bool, ladder: Sequence[int], metric: str
) -> SplitBitsLadder:
    """Build a ladder of split bits."""
    check_bits(bits)
    width = bits + missing
    rungs = check_ladder(ladder, width)
    shares = [shares_of(bits, missing, Fraction(micro, MICRO)) for micro in rungs]
    for number, split in enumerate(shares, start=1):
        if not max(split) <= MAX_DECISION_EPSILON:
            raise ParameterError(
                f"level {number}: the most significant bit would get more than "
                f"{MAX_DECISION_EPSILON} of epsilon"
            )
    chain = BitChain(width, tuple(symmetric_bit(column) for column in zip(*shares, strict=True)))
    ratios = [
        math.prod(ratios)
        for ratios in zip(*(bit.bit_ratios() for bit in chain.ladders), strict=True)
    ]
    return SplitBitsLadder(metric, certify(rungs, ratios), chain, bits)
