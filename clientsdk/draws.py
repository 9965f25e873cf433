"""Draws that the SDK makes itself; all but the chain's outputs precede the look at the value."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

from mechanisms.randomness import Source, SystemSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SYSTEM = SystemSource()
#: What the draws for one recording mostly take: an id, a jitter and a few rungs of one symbol.
_AT_ONCE = 64


class OnceOnly:
    """The operating system's CSPRNG for one recording: one system call where that is enough.

    Every bit is handed out at most once. To be dropped when the recording ends: what is kept
    between recordings could be handed out twice, by a fork or a copied process.

    Examples
    --------
    >>> 0 <= OnceOnly().bits(64) < 2**64
    True
    """

    __slots__ = ("_bits", "_left")

    def __init__(self) -> None:
        self._bits = int.from_bytes(urandom(_AT_ONCE), "little")
        self._left = 8 * _AT_ONCE

    def bits(self, n: int) -> int:
        """Return a uniform integer in ``[0, 2**n)``."""
        if n > self._left:
            return _SYSTEM.bits(n)
        drawn = self._bits
        self._bits = drawn >> n
        self._left -= n
        return drawn & ((1 << n) - 1)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return ``(n,)`` independent uniform 64-bit words."""
        return _SYSTEM.words(n)


def for_one(source: Source) -> Source:
    """Return the source of one recording; of a source that is seeded, itself."""
    return OnceOnly() if type(source) is SystemSource else source


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
    drawn = source.bits(width) if width else 0
    while drawn >= bound:
        drawn = source.bits(width)
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
