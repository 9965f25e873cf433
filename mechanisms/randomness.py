"""Sources of randomness."""

from __future__ import annotations

import os

from mechanisms.arrays import Any, Words, np

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


class Source(Protocol):
    """A source of independent uniform bits."""

    def bits(self, n: int) -> int:
        """Return a uniform integer in ``[0, 2**n)``."""

    def words(self, n: int) -> Words:
        """Return ``(n,)`` independent uniform 64-bit words."""


class SystemSource:
    """The operating system's cryptographically secure generator: what protects a person draws here.

    It keeps no pool, so that neither a fork nor a copied process can hand out the same bits twice.
    """

    __slots__ = ()

    def bits(self, n: int) -> int:
        size = (n + 7) >> 3
        return int.from_bytes(os.urandom(size), "little") >> (8 * size - n)

    def words(self, n: int) -> Words:
        return np.frombuffer(os.urandom(8 * n), dtype="<u8").astype(np.uint64, copy=False)


class _NoSource:
    """Refuses: a value that is rounded at random has more than one encoding."""

    def bits(self, n: int) -> Any:
        raise NotImplementedError("a mechanism that rounds at random must define its prior")

    words = bits


#: For a value that is not rounded at random.
NO_SOURCE = _NoSource()
