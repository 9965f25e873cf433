"""Permute-and-flip over one device's clipped counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm

from mechanisms.arrays import Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.chain import spread
from mechanisms.chains.symbols import (
    SymbolChain,
    SymbolDraw,
    all_levels,
    chains_below,
    degraded,
    steps_below,
)
from mechanisms.errors import ParameterError
from mechanisms.exact import decimal_context, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.randomness import Source, uniform_below
from mechanisms.top_item.mechanism import TopItemMechanism, uniforms_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context, Item
    from mechanisms.planner.targets import Assumed, Precision

#: Bits behind the point of thresholds while they are multiplied.
_FINE = 192


@frozen
class PermuteAndFlip(TopItemMechanism):
    """Permute-and-flip over one person's clipped counts, the selected item relaxed.

    ``epsilon`` lies in [1e-6, 40], ``domain_size``, the number n of items, in [2, 1024], and
    ``clip``, the largest count of an item and the sensitivity, in [1, 65536].

    Privacy
    -------
    Any two vectors of counts in [0, clip] are neighbours. An item's acceptance probability lies in
    [x, 1], x the last threshold over 2**64. So with n items

    - P(r) <= ∫₀¹ (1 − t x)^(n−1) dt = (1 − (1−x)^n)/(n x), reached by counts (clip, 0, …, 0),
    - P(r) >= x ∫₀¹ (1 − t)^(n−1) dt = x/n, reached by counts (0, clip, …, clip),

    and the largest likelihood ratio is exactly (1 − (1−x)^n)/x², from the realised integer. The
    usual scale, ε/(2·clip), is x = e^(−ε/2), for which that is below e^ε by the factor 1 − (1−x)^n;
    the last threshold is the least for which it is not above e^ε. Weaker levels degrade the item by
    ρI + (1−ρ)uniform and never see a count.

    Relaxation
    ----------
    Always; the last level is permute-and-flip's output itself.

    Utility
    -------
    A best item with a gap of the whole clip is selected with (1 − (1−x)^n)/(n x), about e^(ε/2)/n;
    with smaller gaps it is less.

    Use
    ---
    Where several items near the top are nearly as good. To learn on how many devices an item is the
    most frequent, :class:`.TopResponse` is better: it keeps the best item with
    e^ε/(e^ε + n − 1) whatever the gap, and its estimates are of the truth.

    References
    ----------
    R. McKenna, D. Sheldon, "Permute-and-Flip: A New Mechanism for Differentially Private
    Selection", NeurIPS 2020.

    Examples
    --------
    >>> from mechanisms.randomness import SystemSource
    >>> flips = PermuteAndFlip((0.5, 1.0), domain_size=4, clip=10)
    >>> [flips.certified(level) for level in (0, 1)]
    [500000, 1000000]
    >>> len(flips.draw((7, 0, 1, 0), bytes(16), bytes(16), SystemSource()))
    2
    """

    epsilon: Epsilon
    domain_size: int
    clip: int

    name = "permute_and_flip"
    uncompared = "its shares are of what devices send, which need not be their top item"
    gives = (
        "what share of devices name each of {symbols} as their most frequent, by chance the less "
        "often the closer others come, and at most {named:.0%} of the time; at most {clip} of each "
        "are counted"
    )

    @cached_property
    def table(self) -> tuple[int, ...]:
        """Acceptance thresholds over 2**64 by gap, from 2**64 at 0 down to that at the clip."""
        return acceptance_table(self.clip, last_threshold(self.domain_size, self.micros[-1]))

    @cached_property
    def chain(self) -> ReleaseChain:
        selection = extremes(self.domain_size, self.table[-1])
        return release_chain(self.domain_size, selection, self.micros)

    def realised_ratio(self, level: int) -> Fraction:
        table = self.table
        if not (table[0] == GRAINS and 0 < min(table) == table[-1] and max(table) == GRAINS):
            raise ParameterError("acceptance thresholds must fall from 2**64 to that of the clip")
        most, least = extremes(self.domain_size, table[-1])
        return spread(*degraded(most, least, self.chain.steps[level:]))

    def selection(self, symbol: Any) -> tuple[Fraction, ...]:
        counts = self.counts(symbol)
        best = max(counts)
        return exact_flips([Fraction(self.table[best - count], GRAINS) for count in counts])

    def figures(self, level: int) -> dict[str, float]:
        p, q = map(float, self.release(level))
        alone = self.selection((self.clip, *[0] * (self.domain_size - 1)))[0]
        return {"named": q + (p - q) * float(alone)}

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        from dataclasses import replace

        from mechanisms.items import Method

        for item in super().estimate(counts, context):
            # How many devices must have an item for it to be noticed depends on their other items.
            # Nothing says when such a share is told from none.
            estimate = replace(item.estimate, detection_floor=None)
            yield replace(item, estimate=estimate, method=Method.BIASED)

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        raise ParameterError(
            "what permute_and_flip selects is near the most frequent item by chance, so that the "
            "error of its shares depends on the counts and is not predicted; top_response's is"
        )

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        counts = self.counts(symbol)
        best = max(counts)
        return flip([self.table[best - count] for count in counts], source)

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        counts = self.count_rows(symbols)
        # The largest word that accepts: 2**64 itself is no 64-bit number.
        accepts = np.array([threshold - 1 for threshold in self.table], dtype=np.uint64)
        accepts = accepts[counts.max(axis=1, initial=0)[:, None] - counts]
        items = np.tile(np.arange(self.domain_size), (len(counts), 1))
        chosen = np.empty(len(counts), dtype=np.int64)
        rows = np.arange(len(counts))
        for left in range(self.domain_size, 0, -1):
            places = uniforms_below(left, len(rows), source)
            found = items[rows, places]
            taken = source.words(len(rows)) <= accepts[rows, found]
            chosen[rows[taken]] = found[taken]
            items[rows, places] = items[rows, left - 1]
            rows = rows[~taken]
        return chosen

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        rest = self.domain_size - 1
        return (self.clip, *[0] * rest), (0, *[self.clip] * rest)


def exact_flips(chances: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the law for acceptance probabilities given exactly, one of them 1.

    The polynomials under the integral are multiplied out. Equal chances are worked out once; the
    cost is n² products of large integers for each that differs.
    """
    if not chances or max(chances) != 1 or not min(chances) >= 0:
        raise ParameterError("chances must lie in [0, 1], one of them 1")
    scale = lcm(*(chance.denominator for chance in chances))
    whole = [int(chance * scale) for chance in chances]
    law: dict[int, Fraction] = {}
    for place, share in enumerate(whole):
        if share not in law:
            law[share] = _integral(whole[:place] + whole[place + 1 :], scale) * share / scale
    return tuple(law[share] for share in whole)


def _integral(chances: Sequence[int], scale: int) -> Fraction:
    """Integrate ``∏ (1 - t a/scale)`` over t in [0, 1]."""
    powers = [1]
    for chance in chances:
        raised = [scale * power for power in powers] + [0]
        for degree, power in enumerate(powers, start=1):
            raised[degree] -= chance * power
        powers = raised
    terms = (Fraction(power, degree) for degree, power in enumerate(powers, start=1))
    return sum(terms, Fraction(0)) / Fraction(scale ** len(chances))


def flip(thresholds: Sequence[int], source: Source) -> int:
    """Return the place of the first item in random order whose coin comes up.

    Thresholds are acceptance probabilities over 2**64, one of them 2**64.
    """
    left = list(range(len(thresholds)))
    while True:
        place = left.pop(uniform_below(len(left), source))
        if source.bits(64) < thresholds[place]:
            return place


def extremes(domain_size: int, last: int) -> Probabilities:
    """Return the largest and the smallest probability that any counts give to one of n items.

    ``last`` is the acceptance threshold of a gap of the whole clip, over 2**64.
    """
    x = Fraction(last, GRAINS)
    return Probabilities((1 - (1 - x) ** domain_size) / (domain_size * x), x / domain_size)


def last_threshold(domain_size: int, micro: int) -> int:
    """Return the least threshold of a gap of the whole clip that honours an amount."""
    bound = exp_micro(micro)[0]
    low, high = 1, GRAINS
    while low < high:
        middle = (low + high) // 2
        most, least = extremes(domain_size, middle)
        if most <= bound * least:
            high = middle
        else:
            low = middle + 1
    return low


def acceptance_table(clip: int, last: int) -> tuple[int, ...]:
    """Return thresholds by gap that fall exponentially from 2**64 at 0 to ``last`` at the clip."""
    context = decimal_context(60)
    number = context.create_decimal
    exponent = context.divide(
        context.ln(context.divide(number(last), number(GRAINS))), number(clip)
    )
    # From here on in integers over a power of two, which are faster by far.
    fine = number(1 << _FINE)
    factor, value = int(context.multiply(context.exp(exponent), fine)), GRAINS << _FINE
    half, table = 1 << (_FINE - 1), [GRAINS]
    for _ in range(clip - 1):
        value = value * factor >> _FINE
        table.append(max(last, value + half >> _FINE))
    return (*table, last)


@frozen
class ReleaseChain(SymbolChain):
    """The levels below an item that is drawn elsewhere; ``exact`` is the law given that item.

    ``selection`` is the largest and the smallest probability with which any scores select an item,
    of every item the same.
    """

    selection: Probabilities

    def exact_at(self, level: int) -> tuple[Probabilities, ...]:
        """Return the largest and the smallest probability of an item."""
        return (degraded(*self.selection, self.steps[range(self.levels)[level] :]),)

    def ratio(self, level: int) -> Fraction:
        [(most, least)] = self.exact_at(level)
        return most / least

    def draw(self, symbol: int, source: Source) -> list[int]:
        return [*self.weaker(symbol, source), symbol]

    def randomize(self, symbols: Ints, source: Source) -> Ints:
        return chains_below(symbols, self.steps, source)


def release_chain(size: int, selection: Probabilities, ladder: Sequence[int]) -> ReleaseChain:
    """Build the chain below a selection, with the least uniform noise that honours each level."""
    itself = SymbolDraw(size, GRAINS, 0)
    steps = steps_below(size, selection, ladder[:-1])
    return ReleaseChain(size, itself, steps, all_levels(itself.pair, steps), selection)
