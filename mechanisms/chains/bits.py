"""Chains of independent bits, in integers over 2**64.

Every weaker level is the next stronger one with each bit flipped with a probability that does not
depend on it. A bit that is 1 with probability t / 2**64 is "a random 64-bit word is below t". Word
and threshold are compared from the most significant bit down: half of all open comparisons are
decided by each random bit. All bits of a vector are compared at once, a *plane* of equal
significance after another, until none is open (about log2(width) + 1.3 planes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Any, Bytes, Floats, NDArray, Words, np
from mechanisms.chains.chain import BitOutputs, bit_of, spread
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import ceil_fraction, exp_bounds
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.randomness import Source

HALF = GRAINS // 2
#: Bits of a word in the vectorised draws, whose thresholds are those of one word.
LANE = 64


@frozen
class BitLadder:
    """The thresholds and exact probabilities of one bit at every level, weakest first.

    ``one`` and ``zero`` are the grains, of 2**64, with which the strongest level reports a 1 and
    a 0 as 1; ``flips[k]`` those with which level k differs from level k + 1.
    """

    one: int
    zero: int
    flips: tuple[int, ...]
    exact: tuple[Probabilities, ...]

    def realised(self, level: int) -> tuple[Fraction, Fraction]:
        """Return the probabilities that a 1, and a 0, is reported as 1, from the thresholds."""
        p, q = Fraction(self.one, GRAINS), Fraction(self.zero, GRAINS)
        for grains in reversed(self.flips[level:]):
            s = Fraction(grains, GRAINS)
            p, q = p + s * (1 - 2 * p), q + s * (1 - 2 * q)
        return p, q

    def ratios(self) -> tuple[Fraction, ...]:
        """Largest likelihood ratio when two bits change, one up and one down, by level."""
        return tuple(pair.p * (1 - pair.q) / (pair.q * (1 - pair.p)) for pair in self.exact)

    def bit_ratios(self) -> tuple[Fraction, ...]:
        """Largest likelihood ratio when this one bit changes, by level."""
        return tuple(max(pair.p / pair.q, (1 - pair.q) / (1 - pair.p)) for pair in self.exact)


def changed_ratio(p: Fraction, q: Fraction) -> Fraction:
    return max(spread(p, q), spread(1 - p, 1 - q))


def symmetric_bit(exponents: Sequence[Fraction]) -> BitLadder:
    """Build the ladder of a bit that is flipped whichever it is.

    ``exponents`` are the epsilons of the bit at each level, increasing.
    """
    flip = ceil_fraction(GRAINS / (exp_bounds(exponents[-1])[0] + 1))
    return _degrade(GRAINS - flip, flip, exponents)


def one_sided_bit(exponents: Sequence[Fraction]) -> BitLadder:
    """Build that of a bit whose 1 stays 1 half the time; exponents are the whole vector's."""
    zero = ceil_fraction(GRAINS / (exp_bounds(exponents[-1])[0] + 1))
    return _degrade(HALF, zero, exponents)


def _degrade(one: int, zero: int, exponents: Sequence[Fraction]) -> BitLadder:
    """Add weaker levels, each the smallest flip of the exact one above that honours its amount.

    Both kinds of bit cost (1 - q)/q, so that q must come up to 1 / (1 + e**exponent), and a flip
    s makes q + s (1 - 2 q) of it.
    """
    number = len(exponents)
    levels = [Probabilities(Fraction(one, GRAINS), Fraction(zero, GRAINS))]
    if not zero < one:
        raise ParameterError(f"level {number}: its epsilon is too small for 64-bit thresholds")
    flips: list[int] = []
    for exponent in reversed(exponents[:-1]):
        number -= 1
        above = levels[0]
        lack = 1 / (1 + exp_bounds(exponent)[0]) - above.q
        if not lack > 0:
            raise UnrelatedLevelsError(
                f"level {number}: 64-bit thresholds cannot place it below level {number + 1}"
            )
        flip = ceil_fraction(GRAINS * lack / (1 - 2 * above.q))
        if not flip < HALF:
            raise ParameterError(f"level {number}: its epsilon is too small for 64-bit thresholds")
        s = Fraction(flip, GRAINS)
        levels.insert(0, Probabilities(*(side + s * (1 - 2 * side) for side in above)))
        flips.insert(0, flip)
    return BitLadder(one, zero, tuple(flips), tuple(levels))


@frozen
class BitChain(BitOutputs):
    """The levels of independently randomized bits, with a ladder for each bit, or one for all."""

    width: int
    ladders: tuple[BitLadder, ...]

    independent_bits = True

    def __post_init__(self) -> None:
        if len(self.ladders) not in (1, self.width):
            raise ParameterError(f"{len(self.ladders)} ladders do not fit {self.width} bits")
        if len(self.ladders) > LANE:
            raise ParameterError(f"at most {LANE} bits can have ladders of their own")

    @property
    def levels(self) -> int:
        return len(self.ladders[0].exact)

    def exact_at(self, level: int) -> tuple[Probabilities, ...]:
        return tuple(ladder.exact[level] for ladder in self.ladders)

    def realised(self, level: int) -> list[tuple[Fraction, Fraction]]:
        """Return the same, from the thresholds alone."""
        return [ladder.realised(level) for ladder in self.ladders]

    def ratio(self, level: int) -> Fraction:
        """Return the largest likelihood ratio of a level if every bit can change."""
        return self._ratio(self.exact_at(level))

    def realised_ratio(self, level: int) -> Fraction:
        return self._ratio(self.realised(level))

    def _ratio(self, pairs: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
        found = [changed_ratio(p, q) for p, q in pairs]
        return math.prod(found, start=Fraction(1)) ** (self.width // len(found))

    def law(self, value: int, level: int) -> dict[int, Fraction]:
        return self._product(value, self.realised(level))

    def step(self, output: int, level: int) -> dict[int, Fraction]:
        flips = [Fraction(ladder.flips[level], GRAINS) for ladder in self.ladders]
        return self._product(output, [(1 - flip, flip) for flip in flips])

    def _product(
        self, bits: int, pairs: Sequence[tuple[Fraction, Fraction]]
    ) -> dict[int, Fraction]:
        """Return the law of a vector whose bits are set with p where ``bits`` are, else with q."""
        found = {0: Fraction(1)}
        for index in range(self.width):
            one = pairs[index % len(pairs)][0 if bits >> index & 1 else 1]
            found = {
                output | bit << index: share * (one if bit else 1 - one)
                for output, share in found.items()
                for bit in (0, 1)
            }
        return found

    def repeats(self, lower: int, upper: int) -> tuple[float, float]:
        """Return the probability that no bit differs."""
        same = [
            (1 + math.prod(1 - 2 * flip / GRAINS for flip in ladder.flips[lower:upper])) / 2
            for ladder in self.ladders
        ]
        kept = math.prod(same) ** (self.width // len(same))
        return kept, kept

    def log_ratios(self, one: Any, other: Any, reports: Bytes, level: int) -> Floats:
        total = np.zeros(len(reports))
        for bit in range(self.width):
            if (one ^ other) >> bit & 1:
                p, q = map(float, self.ladders[bit % len(self.ladders)].exact[level])
                set_, clear = np.log(p / q), np.log((1 - p) / (1 - q))
                said = np.where(bit_of(reports, bit), set_, clear)
                total += said * (1 if other >> bit & 1 else -1)
        return total

    @cached_property
    def symmetric(self) -> bool:
        """Whether the strongest level too flips a bit whichever it is."""
        return all(ladder.one + ladder.zero == GRAINS for ladder in self.ladders)

    @cached_property
    def zero_planes(self) -> tuple[int, ...]:
        """Planes of the probability that the strongest level reports a 0 as 1."""
        return planes_of([ladder.zero for ladder in self.ladders], self.width)

    @cached_property
    def one_planes(self) -> tuple[int, ...]:
        return planes_of([ladder.one for ladder in self.ladders], self.width)

    @cached_property
    def flip_planes(self) -> tuple[tuple[int, ...], ...]:
        """Planes of the flips between level k + 1 and level k, strongest first."""
        return tuple(
            planes_of([ladder.flips[level] for ladder in self.ladders], self.width)
            for level in range(self.levels - 2, -1, -1)
        )

    def draw(self, bits: int, source: Source) -> list[int]:
        width = self.width
        if bits >> width:
            raise ParameterError(f"a vector must have {width} bits")
        current = bernoulli_mask(self.zero_planes, width, source)
        if self.symmetric:
            current ^= bits
        else:
            current = current & ~bits | bernoulli_mask(self.one_planes, width, source) & bits
        return [*self.weaker(current, source), current]

    def weaker(self, last: int, source: Source) -> list[int]:
        out = []
        for planes in self.flip_planes:
            last ^= bernoulli_mask(planes, self.width, source)
            out.append(last)
        out.reverse()
        return out

    def randomize(self, bits: Words, source: Source) -> list[Words]:
        """Draw chains for ``(n, lanes)`` packed vectors; one such array a level, weakest first."""
        n, lanes = bits.shape
        current = bernoulli_lanes(self.zero_planes, lanes, n, source)
        if self.symmetric:
            current ^= bits
        else:
            current &= ~bits
            current |= bernoulli_lanes(self.one_planes, lanes, n, source) & bits
        out = [current]
        for planes in self.flip_planes:
            current = current ^ bernoulli_lanes(planes, lanes, n, source)
            out.append(current)
        out.reverse()
        return out

    def payloads(self, values: Words, source: Source) -> Bytes:
        out = np.empty((len(values), self.levels, self.payload_width), dtype=np.uint8)
        for level, drawn in enumerate(self.randomize(values, source)):
            out[:, level] = drawn.astype("<u8", copy=False).view(np.uint8)[:, : self.payload_width]
        out[:, :, -1] &= self.last_byte
        return out


def planes_of(thresholds: Sequence[int], width: int) -> tuple[int, ...]:
    """Arrange 64-bit thresholds, one for each bit or a single one for all, in planes.

    The most significant plane is first; bit ``i`` of a plane belongs to bit ``i`` of the vector.
    Planes below the last one that is not empty are left out: what is undecided then is not below.
    """
    if len(thresholds) == 1:
        full = (1 << width) - 1
        planes = [full * (thresholds[0] >> (63 - plane) & 1) for plane in range(64)]
    else:
        planes = [
            sum((t >> (63 - plane) & 1) << i for i, t in enumerate(thresholds))
            for plane in range(64)
        ]
    while planes and not planes[-1]:
        planes.pop()
    return tuple(planes)


def bernoulli_mask(planes: Sequence[int], width: int, source: Source) -> int:
    """Return ``width`` independent bits, bit ``i`` being 1 with its threshold's probability."""
    full = (1 << width) - 1
    batch = width.bit_length() + 2
    undecided, mask, left, words = full, 0, 0, 0
    for plane in planes:
        if not left:
            left, words = batch, source.bits(batch * width)
        differ = undecided & (plane ^ words)
        mask |= differ & plane
        undecided ^= differ
        if not undecided:
            break
        words >>= width
        left -= 1
    return mask


def bernoulli_lanes(planes: Sequence[int], lanes: int, n: int, source: Source) -> Words:
    """Vectorised :func:`bernoulli_mask` for ``n`` vectors of ``64 * lanes`` bits: ``(n, lanes)``.

    Bit ``i`` of a vector is bit ``i % 64`` of lane ``i // 64``; bits beyond the width of the planes
    carry no meaning. Bits with thresholds of their own are at most 64.
    """
    mask = np.zeros(n * lanes, dtype=np.uint64)
    undecided = np.full(n * lanes, 2**64 - 1, dtype=np.uint64)
    active: NDArray[np.intp] | None = None
    for plane in planes:
        bits = np.uint64(plane & (2**64 - 1))
        differ = source.words(len(undecided)) ^ bits
        differ &= undecided
        undecided ^= differ
        differ &= bits
        if active is None:
            mask |= differ
        else:
            mask[active] |= differ
        open_lanes = np.flatnonzero(undecided)
        if len(open_lanes) < 0.8 * len(undecided):
            undecided = undecided[open_lanes]
            active = open_lanes if active is None else active[open_lanes]
        if not len(open_lanes):
            break
    return mask.reshape(n, lanes)
