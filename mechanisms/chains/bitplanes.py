"""Many biased bits from few random ones.

A bit that is 1 with probability t / 2**64 is "a random 64-bit word is below t". Word and threshold
are compared from the most significant bit down: after the first position in which they differ the
outcome is known, so that half of all open comparisons are decided by each random bit. All bits of
a vector are compared at once, a *plane* of equal significance after another, until none is open
(about log2(width) + 1.3 planes). The outcome is exactly that of comparing whole words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mechanisms.arrays import Words


def planes_of(thresholds: Sequence[int], width: int) -> tuple[int, ...]:
    """Arrange 64-bit thresholds, one for each bit or a single one for all, in planes.

    The most significant plane is first; bit ``i`` of a plane belongs to bit ``i`` of the vector.
    Planes below the last one that is not empty are left out: what is undecided then is equal so
    far, hence not below.

    Examples
    --------
    >>> planes_of([3 << 62], 4)
    (15, 15)
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
    """Return ``width`` independent bits, bit ``i`` being 1 with its threshold's probability.

    The source is asked for enough planes at once that mostly one request suffices.
    """
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
    carry no meaning. Where bits have thresholds of their own, there are at most 64.
    """
    import numpy as np

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
