"""Whether a sampler draws by the exact law that its certificate is computed from.

A device's sampler is run on integers that are not drawn but *open*: a :class:`Word` is a set of
equally likely values, and a question about it (is it below a threshold?) cuts that set, so that all
answers are followed, each with its exact probability. Vectors of bits have too many outcomes for
that. They are drawn from given words, thresholds and their neighbours among them, so that every bit
shows whether it alone is decided by its own word and its own threshold. Samplers that are compared
with each other instead are compared count by count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from mechanisms.arrays import Bytes, Ints, Words
from mechanisms.audit.reports import AttackedReports, column_of
from mechanisms.base import NO_ID, Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.packed import PackedChain
from mechanisms.chains.supporting import SupportChain
from mechanisms.errors import ParameterError
from mechanisms.estimators.counting import grouped_bit_sums, grouped_counts
from mechanisms.randomness import Source, SystemSource, uniform_below

Outcome = TypeVar("Outcome", bound=Hashable)
#: Runs of a sampler in which the outcomes of one input are followed; all inputs share three times
#: as many.
RUNS = 6000
#: Inputs whose laws are compared, and sets of words from which each vector of bits is drawn.
INPUTS, SETS = 12, 16
#: Outputs of a level, and values of an open integer, up to which they are followed one by one.
_OUTPUTS, _VALUES = 2048, 4096
#: A normal deviate beyond which a count is compared by its exact distribution.
_NEAR = 4.5


class NotFollowedError(Exception):
    """The sampler asks more of an open integer than can be followed."""


class _Fork(Exception):  # noqa: N818 - never seen outside
    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes


class _Tape:
    """A source of open integers; ``path`` says which part to go on with at each cut."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self._path = path
        self._cuts = self._calls = 0
        self._sets: dict[tuple[int, int, int], range] = {}

    def bits(self, n: int) -> Any:
        self._calls += 1
        return Word(self, (self._calls, 0, n)) if n else 0

    def words(self, n: int) -> Words:
        raise NotFollowedError("a device draws one value at a time")

    def values(self, key: tuple[int, int, int]) -> range:
        """Return the values left of some bits of a call: ``(call, first, width)``."""
        if key not in self._sets:
            call, first, width = key
            for other, begins, length in self._sets:
                if other == call and begins < first + width and first < begins + length:
                    raise NotFollowedError("parts of one integer that overlap")
            self._sets[key] = range(1 << width)
        return self._sets[key]

    def cut(self, key: tuple[int, int, int], count: int, part: Callable[[int], range]) -> int:
        """Go on with one of so many parts of a set, and return its number."""
        place = 0
        if count > 1:
            if self._cuts == len(self._path):
                raise _Fork([each.stop - each.start for each in map(part, range(count))])
            place = self._path[self._cuts]
            self._cuts += 1
            self._sets[key] = part(place)
        return place


def _of_int(operation: Callable[[int, int], Any]) -> Callable[[Any, Any], Any]:
    """Return a method that cuts the set into single values, and does with one what an int does."""
    return lambda word, other: operation(int(word), int(other))


class Word:
    """An open integer: ``(w + add) // step + shift`` for the values ``w`` that are left."""

    __slots__ = ("_add", "_key", "_shift", "_step", "_tape")

    def __init__(
        self, tape: _Tape, key: tuple[int, int, int], add: int = 0, step: int = 1, shift: int = 0
    ) -> None:
        self._tape, self._key = tape, key
        self._add, self._step, self._shift = add, step, shift

    def __index__(self) -> int:
        left = self._tape.values(self._key)
        least = self._at(left.start)
        count = self._at(left.stop - 1) - least + 1
        if count > _VALUES:
            raise NotFollowedError("an integer with too many values")

        def part(place: int) -> range:
            start, end = self._below(least + place), self._below(least + place + 1)
            return range(max(start, left.start), min(end, left.stop))

        return least + self._tape.cut(self._key, count, part)

    __int__ = __index__

    def _at(self, w: int) -> int:
        return (w + self._add) // self._step + self._shift

    def _below(self, value: int) -> int:
        """Return how many values of ``w``, from 0 on, make this integer less than ``value``."""
        return (value - self._shift) * self._step - self._add

    def __lt__(self, other: Any) -> bool:
        left, end = self._tape.values(self._key), self._below(int(other))
        if left.start < end < left.stop:
            parts = range(left.start, end), range(end, left.stop)
            return not self._tape.cut(self._key, 2, parts.__getitem__)
        return end >= left.stop

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __le__(self, other: Any) -> bool:
        return self < int(other) + 1

    def __gt__(self, other: Any) -> bool:
        return not self < int(other) + 1

    def __eq__(self, other: object) -> bool:
        return self <= other and self >= other

    def __hash__(self) -> int:
        return hash(int(self))

    def __bool__(self) -> bool:
        return self != 0

    def _slice(self, first: int, width: int) -> Any:
        """Return some bits, which are an open integer of their own."""
        call, begins, length = self._key
        width = min(width, length - first)
        return Word(self._tape, (call, begins + first, width)) if width > 0 else 0

    @property
    def _whole(self) -> bool:
        return (self._add, self._step, self._shift) == (0, 1, 0)

    def __and__(self, mask: Any) -> Any:
        width = int(mask).bit_length()
        if self._whole and int(mask) == (1 << width) - 1 and width % 64 == 0:
            return self._slice(0, width)
        return int(self) & int(mask)

    __rand__ = __and__

    def __rshift__(self, bits: Any) -> Any:
        if self._whole and bits % 64 == 0:
            return self._slice(bits, self._key[2])
        return self // (1 << bits)

    def __add__(self, other: Any) -> Any:
        return Word(self._tape, self._key, self._add, self._step, self._shift + int(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -int(other)

    def __floordiv__(self, other: Any) -> Any:
        add = self._add + self._step * self._shift
        return Word(self._tape, self._key, add, self._step * int(other))

    def __getattr__(self, name: str) -> Any:
        return getattr(int(self), name)

    __rsub__, __lshift__, __rlshift__ = map(
        _of_int, (int.__rsub__, int.__lshift__, int.__rlshift__)
    )
    __mod__, __divmod__, __mul__ = map(_of_int, (int.__mod__, int.__divmod__, int.__mul__))
    __xor__, __or__ = map(_of_int, (int.__xor__, int.__or__))
    __rmul__, __rxor__, __ror__ = __mul__, __xor__, __or__


def drawn_law(
    draw: Callable[[Source], Outcome], runs: int = RUNS
) -> tuple[dict[Outcome, Fraction], Fraction]:
    """Follow all outcomes of a draw, the likeliest first; return their law, and what is left of 1.

    The law is exact where nothing is left: where no draw is repeated until it fits, and ``runs``
    are enough. Otherwise each outcome has at least its probability here. NotFollowedError where
    a draw does with an integer what cannot be followed.

    >>> drawn_law(lambda source: source.bits(64) < 3 << 62)
    ({True: Fraction(3, 4), False: Fraction(1, 4)}, Fraction(0, 1))
    """
    law: dict[Outcome, Fraction] = {}
    # The likeliest first, and of each its probability as a fraction that is not reduced.
    paths: list[tuple[float, tuple[int, ...], int, int]] = [(-1.0, (), 1, 1)]
    for _ in range(runs):
        if not paths:
            break
        _, path, above, below = heappop(paths)
        try:
            outcome = draw(_Tape(path))
            law[outcome] = law.get(outcome, Fraction(0)) + Fraction(above, below)
        except _Fork as fork:
            whole = below * sum(fork.sizes)
            for place, size in enumerate(fork.sizes):
                heappush(paths, (-above * size / whole, (*path, place), above * size, whole))
    return law, sum((Fraction(above, below) for _, _, above, below in paths), Fraction(0))


def certified_law(mechanism: Mechanism, prior: Sequence[tuple[int, int]]) -> Callable[..., Any]:
    """Return the exact probability of a chain's outputs, weakest first, as certificates have it.

    ``prior`` is what :meth:`.Mechanism.prior` returns for the value that the chain is of.
    """
    chain, total = mechanism.chain, sum(weight for _, weight in prior)
    last = lru_cache(lambda value: chain.law(value, chain.levels - 1))
    step = lru_cache(chain.step)

    def probability(outputs: Sequence[int]) -> Fraction:
        share = sum(
            (weight * last(value).get(outputs[-1], Fraction(0)) for value, weight in prior),
            Fraction(0),
        )
        for level, (output, above) in enumerate(pairwise(outputs)):
            share *= step(above, level).get(output, Fraction(0))
        return share / total

    return probability


@dataclass(frozen=True)
class LawCheck:
    """How the law of a sampler compares with the one that its certificate is computed from.

    ``inputs`` were followed; ``left`` is the most probability that was not, of any of them, and 1
    where they cannot be followed at all. ``positions`` bits were compared singly instead.
    """

    inputs: int = 0
    left: Fraction = Fraction(0)
    positions: int = 0
    differs: bool = False

    @property
    def words(self) -> str:
        """The finding in a word or two."""
        if self.differs:
            return "differs"
        if self.positions:
            return f"exact, {self.positions} bits"
        if not self.left:
            return "exact"
        return "not followed" if self.left == 1 else f"{float(1 - self.left):.3%} of it"


def check_draws(mechanism: Mechanism, source: Source, runs: int = RUNS) -> LawCheck:
    """Compare the law of :meth:`.Mechanism.draw`, all levels together, with the certified one.

    ``source`` only chooses inputs and ids: the inputs of the largest loss, the ends of the domain
    and others at random, as many as three times ``runs`` are enough for.
    """
    found, left = LawCheck(), 3 * runs
    for value in _inputs(mechanism, source):
        ids = [NO_ID, source.bits(128).to_bytes(16, "little")]
        for pseudonym in ids if mechanism.coins == "pseudonym" else ids[:1]:
            chain = source.bits(128).to_bytes(16, "little")
            one, used = _check_draw(mechanism, value, chain, pseudonym, source, runs)
            left -= used
            found = LawCheck(
                found.inputs + one.inputs,
                max(found.left, one.left),
                max(found.positions, one.positions),
                found.differs or one.differs,
            )
        if left < runs:
            break
    return found


def _inputs(mechanism: Mechanism, source: Source) -> list[Any]:
    some = list(mechanism.some_inputs(INPUTS, source))
    ends = (some[0], some[-1])
    if (size := getattr(mechanism, "domain_size", 0)) and isinstance(some[0], int):
        ends = (0, size - 1)
    worst = mechanism.worst_inputs(-1)
    chosen = list(dict.fromkeys([*worst, *_between(some[0]), *ends, *some]))
    return chosen[: 4 if isinstance(mechanism.chain, BitChain) else INPUTS]


def _between(value: Any) -> list[Any]:
    """Return an input whose numbers are on no grid, and so are rounded, if one is of numbers."""
    if isinstance(value, float):
        return [0.3]
    if isinstance(value, tuple) and isinstance(value[0], float):
        return [(0.3,) * len(value)]
    return []


def _check_draw(
    mechanism: Mechanism, value: Any, chain: bytes, pseudonym: bytes, source: Source, runs: int
) -> tuple[LawCheck, int]:
    """Return what is found of one input, and how many runs it took."""
    prior = mechanism.prior(value, chain, pseudonym)
    if isinstance(mechanism.chain, BitChain):
        if len(prior) > 1:
            return LawCheck(), 0
        same = all(_same_bits(mechanism, value, chain, pseudonym, source) for _ in range(SETS))
        return LawCheck(1, positions=mechanism.chain.width, differs=not same), 0
    if outputs(mechanism) > _OUTPUTS:
        return LawCheck(1, Fraction(1)), runs
    used = 0

    def draw(source: Source) -> tuple[int, ...]:
        nonlocal used
        used += 1
        payloads = mechanism.draw(value, chain, pseudonym, source)
        return tuple(int.from_bytes(payload, "little") for payload in payloads)

    try:
        law, left = drawn_law(draw, runs)
    except (NotFollowedError, TypeError):
        return LawCheck(1, Fraction(1)), runs
    certified = certified_law(mechanism, prior)
    same = all(share <= certified(output) <= share + left for output, share in law.items())
    return LawCheck(1, left, differs=not same), used


def outputs(mechanism: Mechanism) -> int:
    """Return how many outputs a level has."""
    chain: Any = mechanism.chain
    if isinstance(chain, BitChain):
        return 1 << chain.width
    if isinstance(chain, SupportChain):
        return chain.total
    return int(chain.single.size**chain.answers if isinstance(chain, PackedChain) else chain.size)


# Vectors of bits, from given words.


class _Planes:
    """Words from which vectors of bits are drawn: one a bit and a decision, as a device takes them.

    ``decisions`` has for each the thresholds of ``width`` bits and their words. Some bit of every
    64 has a word that equals its threshold, so that every plane is drawn, whatever the others do.
    """

    def __init__(self, decisions: Sequence[tuple[list[int], list[int]]], width: int) -> None:
        self._width = width
        self._rows: list[tuple[list[int], int]] = []
        for thresholds, words in decisions:
            planes = 64 - min((t & -t).bit_length() - 1 if t else 64 for t in thresholds)
            if planes:
                self._rows.append((words, planes))
        self._plane = 0

    def _next(self) -> int:
        """Return the next plane: bit ``i`` is that of word ``i``."""
        if not self._rows:
            raise NotFollowedError("more words than there are decisions")
        words, shift = self._rows[0][0], 63 - self._plane
        self._plane += 1
        return sum((word >> shift & 1) << i for i, word in enumerate(words)) if shift >= 0 else 0

    def _end(self) -> None:
        if self._plane >= self._rows[0][1]:
            self._rows.pop(0)
            self._plane = 0

    def bits(self, n: int) -> int:
        count, rest = divmod(n, self._width)
        if rest:
            raise NotFollowedError("bits that are no whole planes")
        drawn = sum(self._next() << place * self._width for place in range(count))
        self._end()
        return drawn

    def words(self, n: int) -> Words:
        if n != -(-self._width // 64):
            raise NotFollowedError("words that are no whole planes")
        drawn = np.frombuffer(self._next().to_bytes(8 * n, "little"), dtype="<u8")
        self._end()
        return drawn.astype(np.uint64)

    @property
    def left(self) -> int:
        return len(self._rows)


def _same_bits(
    mechanism: Mechanism, value: Any, chain: bytes, pseudonym: bytes, source: Source
) -> bool:
    """Return whether vectors are what given words make of them, on a device and in a batch."""
    bits, levels = mechanism.chain, mechanism.levels
    assert isinstance(bits, BitChain)
    encoded = mechanism.prior(value, chain, pseudonym)[0][0]
    for lanes in (False, True):
        width = -(-bits.width // 64) * 64 if lanes else bits.width
        thresholds = [_each(bits, [ladder.zero for ladder in bits.ladders], width)]
        if not bits.symmetric:
            thresholds.append(_each(bits, [ladder.one for ladder in bits.ladders], width))
        for level in range(levels - 2, -1, -1):
            flips = [ladder.flips[level] for ladder in bits.ladders]
            thresholds.append(_each(bits, flips, width))
        decisions = [(each, _words_for(each, source)) for each in thresholds]
        below = [
            sum((word < t) << i for i, (t, word) in enumerate(zip(*each, strict=True)))
            for each in decisions
        ]
        current = below.pop(0)
        if bits.symmetric:
            current ^= encoded
        else:
            current = current & ~encoded | below.pop(0) & encoded
        expected = [current]
        for flips_now in below:
            expected.insert(0, expected[0] ^ flips_now)
        full = (1 << bits.width) - 1
        planes = _Planes(decisions, width)
        try:
            found = _drawn_bits(mechanism, value, chain, pseudonym, planes, lanes=lanes)
        except NotFollowedError:
            return False
        if found != [each & full for each in expected] or planes.left:
            return False
    return True


def _drawn_bits(
    mechanism: Mechanism, value: Any, chain: bytes, pseudonym: bytes, planes: Any, *, lanes: bool
) -> list[int]:
    if not lanes:
        payloads: Sequence[bytes] = mechanism.draw(value, chain, pseudonym, planes)
    else:
        ids = np.frombuffer(chain + pseudonym, dtype="<u8").astype(np.uint64).reshape(2, 1, 2)
        column = column_of([value], np.zeros(1, dtype=np.int64))
        # A number that is rounded at random would take words of its own.
        encoded = mechanism.encode_many(column, ids[0], ids[1], SystemSource())
        [rows] = mechanism.chain.payloads(encoded, planes)
        payloads = [row.tobytes() for row in rows]
    return [int.from_bytes(payload, "little") for payload in payloads]


def _each(bits: BitChain, thresholds: list[int], width: int) -> list[int]:
    """Return the threshold of every bit, and of those with which a batch fills its first word."""
    shared = len(thresholds) == 1
    each = thresholds * (max(width if bits.width >= 64 else bits.width, 1) if shared else 1)
    return each + [0] * (width - len(each))


def _words_for(thresholds: list[int], source: Source) -> list[int]:
    """Return words about thresholds: equal, one less, different in one bit, or any."""
    equal = uniform_below(min(64, len(thresholds)), source)
    words = []
    for place, t in enumerate(thresholds):
        near = (t, max(t - 1, 0), t ^ 1 << source.bits(6), source.bits(64))
        words.append(t if place % 64 == equal else near[source.bits(2)])
    return words


# Two samplers, count by count.


def tables(reports: AttackedReports, mechanism: Mechanism, inputs: Sequence[Any]) -> Ints:
    """Count reports by input: bits, or bytes where payloads have one: ``(inputs, cells)``.

    Cells are of the levels, of what each differs in from the next, of the chain ids, and where
    reports are symbols of how many of them are what the public coins make of the input.
    """
    payloads, places = reports.payloads, reports.places
    changes = payloads[:, 1:] ^ payloads[:, :-1]
    ids = np.ascontiguousarray(reports.chains).view(np.uint8).reshape(len(places), 1, 16)
    planes = np.concatenate([payloads, changes], axis=1)
    parts = [_tally(each, places, len(inputs)) for each in (planes, ids)]
    true = mechanism.truths(column_of(inputs, places), reports.chains)[:, None]
    if true.shape[2]:
        agreed = true == mechanism.answers(payloads)
        sums = np.zeros((len(inputs), *agreed.shape[1:]), dtype=np.int64)
        np.add.at(sums, places, agreed)
        parts.append(sums)
    return np.concatenate([part.reshape(len(inputs), -1) for part in parts], axis=1)


def _tally(planes: Bytes, places: Ints, inputs: int) -> Ints:
    """Count set bits, or of planes of one byte its values: ``(inputs, planes, cells)``."""
    _, count, width = planes.shape
    if width > 1:
        sums = grouped_bit_sums(planes.reshape(len(planes), -1), places, inputs)
        return sums.reshape(inputs, count, 8 * width)
    cells = count * places[:, None] + np.arange(count)
    counts = grouped_counts(planes.ravel(), cells.ravel(), inputs * count, 256)
    return counts.reshape(inputs, count, 256)


def same_law(one: Ints, other: Ints, totals: tuple[Ints, Ints], rate: float) -> bool:
    """Return whether two samplers' counts by input may come from one law.

    ``totals`` are the reports of each input, ``(inputs,)``. Given the total of a cell its count in
    one table is hypergeometric. A false "no" has a probability of at most ``rate``, whatever the
    dependence of cells (Bonferroni).
    """
    from scipy.stats import hypergeom

    if one.shape != other.shape:
        raise ParameterError(f"tables of one shape are compared, not {one.shape} and {other.shape}")
    shape = (-1, *[1] * (one.ndim - 1))
    first, second = (np.broadcast_to(each.reshape(shape), one.shape) for each in totals)
    both, whole = one + other, first + second
    share = both / np.maximum(whole, 1)
    spread = np.sqrt(share * (1 - share) * first * second / np.maximum(whole, 1))
    far = np.abs(one - share * first) > _NEAR * spread
    tail = rate / max(2 * one.size, 1)
    seen = (one[far], whole[far], both[far], first[far])
    low = hypergeom.cdf(seen[0], *seen[1:]) < tail
    high = hypergeom.sf(seen[0] - 1, *seen[1:]) < tail
    return not (low | high).any()
