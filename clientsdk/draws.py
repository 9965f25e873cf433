"""Random draws that the SDK makes itself, all of them before it looks at the value."""

from __future__ import annotations

from os import urandom

from mechanisms.digests import sha256
from mechanisms.randomness import Source, SystemSource, uniform_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bytes that one recording mostly takes: an id, a jitter and a few levels of one symbol.
_AT_ONCE = 64
#: Bytes kept back, to go on with where the operating system gives no more.
_SEED = 32


class OnceOnly:
    """The operating system's CSPRNG for one recording: one system call where that is enough.

    Every bit is returned at most once. Drop it when the recording ends: what is kept between
    recordings could be returned twice, by a fork or a copied process.

    It gives bits to the end, or raises OSError when it is made, before a value is looked at: how
    many bits a mechanism takes depends on the value and on what it draws, and so then would whether
    there is a report. So 32 bytes of the first call are kept back, and where a later one fails,
    what it should have given is hashed from those: SHA-256 of them and a number, block by block.
    """

    __slots__ = ("_bits", "_blocks", "_left")

    def __init__(self) -> None:
        # The seed is what remains above the bits that are left.
        self._bits = int.from_bytes(urandom(_AT_ONCE + _SEED), "little")
        self._left = 8 * _AT_ONCE
        self._blocks = 0

    def bits(self, n: int) -> int:
        if n > self._left:
            size = (n + 7) >> 3
            return int.from_bytes(self._more(size), "little") >> (8 * size - n)
        drawn = self._bits
        self._bits = drawn >> n
        self._left -= n
        return drawn & ((1 << n) - 1)

    def words(self, n: int) -> NDArray[np.uint64]:
        import numpy as np

        return np.frombuffer(self._more(8 * n), dtype="<u8").astype(np.uint64, copy=False)

    def _more(self, size: int) -> bytes:
        try:
            return urandom(size)
        except (OSError, NotImplementedError):
            seed = (self._bits >> self._left).to_bytes(_SEED, "little")
            blocks = range(self._blocks, self._blocks - (-size // 32))
            self._blocks = blocks.stop
            return b"".join(
                sha256(b"sotto.draws\0" + seed + number.to_bytes(8, "little")) for number in blocks
            )[:size]


def for_one(source: Source) -> Source:
    return OnceOnly() if type(source) is SystemSource else source


def for_chain(source: Source, resolution: int) -> tuple[Source, bytes, int]:
    """Return the source of one recording, a chain id, and a jitter uniform below ``resolution``."""
    source = OnceOnly() if type(source) is SystemSource else source
    return source, identifier(source), uniform_below(resolution, source)


def replaces(source: Source, seen: int) -> bool:
    """Draw whether the ``seen``-th value of a period displaces the one in the reservoir.

    With probability exactly ``1 / seen`` (Vitter, ACM TOMS 11, 1985, algorithm R with one place).
    """
    return uniform_below(seen, source) == 0


def identifier(source: Source) -> bytes:
    return source.bits(128).to_bytes(16, "little")
