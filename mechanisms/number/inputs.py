"""Numbers in [0, 1] as the inputs of a finite channel: a grid with both ends, rounded at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.levels import GRAINS
from mechanisms.number.grid import check_unit, unit_array
from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def split(u: float, steps: int) -> tuple[int, int]:
    """Return the input below ``u`` and the grains, of 2**64, that go to the next one.

    Parameters
    ----------
    u : float
        In [0, 1].
    steps : int
        A power of two, so that nothing is lost in the division.

    Examples
    --------
    >>> split(0.3125, 8) == (2, 2**63)
    True
    """
    # Narrow numpy floats would be scaled in their own few digits.
    scaled = float(u) * steps
    below = int(scaled)
    return below, int((scaled - below) * 2.0**64)


def encode(u: float | None, steps: int, missing: bool, source: Source) -> int:
    """Return an input whose mean is the number; ``steps + 1`` for a missing value."""
    check_unit(u, missing)
    if u is None:
        return steps + 1
    below, grains = split(u, steps)
    return below + (source.bits(64) < grains) if grains else below


def prior(u: float | None, steps: int, missing: bool) -> Prior:
    """Return the inputs that :func:`encode` may return, with their weights."""
    check_unit(u, missing)
    if u is None:
        return ((steps + 1, 1),)
    below, grains = split(u, steps)
    if not grains:
        return ((below, 1),)
    return ((below, GRAINS - grains), (below + 1, grains))


def encode_many(symbols: Any, steps: int, missing: bool, source: Source) -> NDArray[np.int64]:
    """Vectorised :func:`encode`: ``(n,)`` numbers, NaN being missing, to ``(n,)`` ``int64``."""
    import numpy as np

    values, gone = unit_array(symbols, missing)
    scaled = np.where(gone, 0.0, values) * float(steps)
    below = np.floor(scaled)
    grains = ((scaled - below) * 2.0**64).astype(np.uint64)
    points = below.astype(np.int64)
    points += source.words(len(values)) < grains
    return np.where(gone, steps + 1, points)
