"""Draws that the SDK makes itself; all but the chain's outputs precede the look at the value."""

from __future__ import annotations

from mechanisms.randomness import Source


def below(source: Source, bound: int) -> int:
    """Return an exactly uniform integer in ``[0, bound)``, by rejection.

    Parameters
    ----------
    source : Source
        Where the bits come from.
    bound : int
        At least 1. A bound of 1 draws nothing.

    Examples
    --------
    >>> from mechanisms.randomness import SystemSource
    >>> below(SystemSource(), 1)
    0
    """
    width = (bound - 1).bit_length()
    if width == 0:
        return 0
    while True:
        drawn = source.bits(width)
        if drawn < bound:
            return drawn


def replaces(source: Source, seen: int) -> bool:
    """Draw whether the ``seen``-th value of a period displaces the one in the reservoir.

    True with probability exactly ``1 / seen``, so that after any number of values each of them is
    the one kept with equal probability (Vitter, ACM TOMS 11, 1985, algorithm R with one place).
    """
    return below(source, seen) == 0


def identifier(source: Source) -> bytes:
    """Draw a fresh 16-byte chain id."""
    return source.bits(128).to_bytes(16, "little")
