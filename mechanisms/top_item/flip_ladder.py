"""Permute-and-flip over one device's clipped counts, as a ladder."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.exact import decimal_context, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS, Probabilities, certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.top_item.flipping import exact_flips
from mechanisms.top_item.permute_and_flip import flip
from mechanisms.top_item.released import ReleaseChain, release_chain
from mechanisms.top_item.top_item import TopItemLadder, check_items, uniforms_below

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bits behind the point of thresholds while they are multiplied.
_FINE = 192


@frozen
class PermuteAndFlipLadder(TopItemLadder):
    """Permute-and-flip over one person's clipped counts, the selected item relaxed.

    Parameters
    ----------
    table : tuple of int
        Acceptance thresholds over 2**64 by gap, from 2**64 at 0 down to that at the clip.

    Privacy
    -------
    Any two vectors of counts in [0, clip] are neighbours. An item's acceptance probability lies in
    [x, 1], x the last threshold over 2**64. So with n items

    - P(r) <= ∫₀¹ (1 − t x)^(n−1) dt = (1 − (1−x)^n)/(n x), reached by counts (clip, 0, …, 0),
    - P(r) >= x ∫₀¹ (1 − t)^(n−1) dt = x/n, reached by counts (0, clip, …, clip),

    and the largest likelihood ratio is exactly (1 − (1−x)^n)/x², from the realised integer. The
    usual scale, ε/(2·clip), is x = e^(−ε/2), for which that is below e^ε by the factor 1 − (1−x)^n;
    the last threshold is the least for which it is not above e^ε. Weaker rungs degrade the item by
    ρI + (1−ρ)uniform and never see a count.

    Relaxation
    ----------
    Always; the last rung is permute-and-flip's output itself.

    Utility
    -------
    A best item with a gap of the whole clip is selected with (1 − (1−x)^n)/(n x), about e^(ε/2)/n;
    with smaller gaps it is less.

    Use
    ---
    Where several items near the top are nearly as good. To learn on how many devices an item is the
    most frequent, :class:`.TopResponseLadder` is better: it keeps the best item with
    e^ε/(e^ε + n − 1) whatever the gap, and its estimates are of the truth.

    References
    ----------
    R. McKenna, D. Sheldon, "Permute-and-Flip: A New Mechanism for Differentially Private
    Selection", NeurIPS 2020.

    Examples
    --------
    >>> from mechanisms.randomness import SystemSource
    >>> ladder = permute_and_flip_ladder(4, 10, [500_000, 1_000_000], "screen")
    >>> [ladder.certified(level) for level in (0, 1)]
    [500000, 1000000]
    >>> len(ladder.draw((7, 0, 1, 0), bytes(16), bytes(16), SystemSource()))
    2
    """

    name = "permute_and_flip"
    chain: ReleaseChain
    table: tuple[int, ...]

    def law(self, symbol: Any) -> tuple[Fraction, ...]:
        """Return the exact law of the last rung."""
        counts = self.counts(symbol)
        best = max(counts)
        return exact_flips([Fraction(self.table[best - count], GRAINS) for count in counts])

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Draw the selected item."""
        counts = self.counts(symbol)
        best = max(counts)
        return flip([self.table[best - count] for count in counts], source)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the law of the selected item in integer weights."""
        law = self.law(symbol)
        scale = lcm(*(share.denominator for share in law))
        return tuple((item, int(share * scale)) for item, share in enumerate(law))

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Draw the selected items, ``(n,)``."""
        import numpy as np

        counts = self.count_rows(symbols)
        # The largest word that accepts: 2**64 itself is no 64-bit number.
        accepts = np.array([threshold - 1 for threshold in self.table], dtype=np.uint64)
        accepts = accepts[counts.max(axis=1, initial=0)[:, None] - counts]
        items = np.tile(np.arange(self.chain.size), (len(counts), 1))
        chosen = np.empty(len(counts), dtype=np.int64)
        rows = np.arange(len(counts))
        for left in range(self.chain.size, 0, -1):
            places = uniforms_below(left, len(rows), source)
            found = items[rows, places]
            taken = source.words(len(rows)) <= accepts[rows, found]
            chosen[rows[taken]] = found[taken]
            items[rows, places] = items[rows, left - 1]
            rows = rows[~taken]
        return chosen

    def support_pairs(self) -> NDArray[np.float64]:
        """Return (p, q) of every level for the item that was *released*, not the true top item.

        The estimated shares are of devices on which permute-and-flip selected an item: only the
        degradation is undone, so that the last rung has p = 1 and q = 0 and no standard error.
        What the selection itself hides cannot be undone without a model of the counts.
        """
        import numpy as np

        return np.array([(float(rung.p), float(rung.q)) for rung in self.chain.releases])


def extremes(domain_size: int, last: int) -> Probabilities:
    """Return the largest and the smallest probability that any counts give to an item.

    Parameters
    ----------
    domain_size : int
        The number n of items.
    last : int
        The acceptance threshold of a gap of the whole clip, over 2**64.

    Examples
    --------
    >>> most, least = extremes(2, 1 << 63)
    >>> most, least
    (Fraction(3, 4), Fraction(1, 4))
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
    """Return thresholds by gap that fall exponentially from 2**64 at 0 to ``last`` at the clip.

    Examples
    --------
    >>> [threshold / 2**64 for threshold in acceptance_table(2, 1 << 62)]
    [1.0, 0.5, 0.25]
    """
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


def permute_and_flip_ladder(
    domain_size: int, clip: int, ladder: Sequence[int], metric: str
) -> PermuteAndFlipLadder:
    """Build a ladder of permute-and-flip over clipped counts.

    Parameters
    ----------
    domain_size : int
        In [2, 1024], the number of items.
    clip : int
        In [1, 65536], the largest count of an item; also the sensitivity.
    ladder : sequence of int
        Micro-epsilon, weakest first.
    metric : str
    """
    rungs = check_ladder(ladder)
    check_items(domain_size, clip)
    last = last_threshold(domain_size, rungs[-1])
    chain = release_chain(domain_size, extremes(domain_size, last), rungs)
    amounts = certify(rungs, [rung.p / rung.q for rung in chain.exact])
    return PermuteAndFlipLadder(metric, amounts, chain, clip, acceptance_table(clip, last))
