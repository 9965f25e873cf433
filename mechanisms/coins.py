"""Public coins: what both sides compute from an identifier, each for a purpose of its own.

The bin of a random threshold, the bit that a report is about, the cohort of a string and the
shard of a device cost no bytes on the wire: they are hashes of the chain id or the pseudonym, each
purpose in its own domain, so that no two of them are correlated. Vectorised twins take ids as
``(n, 2)`` ``uint64`` (little-endian halves, bytes 0..7 first).
"""

from __future__ import annotations

from functools import lru_cache

from mechanisms.arrays import Words, np
from mechanisms.digests import sha256

_MASK = 2**64 - 1
_WORD = 2**32 - 1
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def mix64(x: int) -> int:
    """Return the SplitMix64 finalizer of ``x``, a bijection of ``[0, 2**64)``.

    Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK
    return x ^ (x >> 31)


@lru_cache(maxsize=4096)
def domain(tag: str) -> int:
    """Return the 64-bit constant that separates the hashes for ``tag`` from all others."""
    return int.from_bytes(sha256(tag.encode())[:8], "little")


SHARD = domain("sotto.shard")


def cohort_domain(metric: str) -> int:
    """Return the domain of the cohorts of ``metric`` (hashed from the pseudonym)."""
    return domain("sotto.cohort:" + metric)


def coin_domain(metric: str) -> int:
    """Return the domain of the coins of ``metric`` (hashed from the chain id)."""
    return domain("sotto.coin:" + metric)


def hash_id(identifier: bytes, dom: int) -> int:
    """Return the 64-bit hash of a 16-byte identifier in domain ``dom``."""
    low = int.from_bytes(identifier[:8], "little")
    high = int.from_bytes(identifier[8:16], "little")
    return mix64(mix64(low ^ dom) ^ high)


def shard_of(pseudonym: bytes, shards: int) -> int:
    """Return the shard, in ``[0, shards)``, of a 16-byte pseudonym."""
    return hash_id(pseudonym, SHARD) % shards


def bloom_positions(string: bytes, cohort: int, hashes: int, bits: int) -> tuple[int, ...]:
    """Return the ``hashes`` positions, in ``[0, bits)``, of the Bloom filter of a string in UTF-8.

    Each cohort hashes in its own way; at most 8 positions are successive 32-bit words of one
    SHA-256, and may coincide.
    """
    digest = sha256(b"sotto.bloom\0" + cohort.to_bytes(4, "little") + string)
    words = int.from_bytes(digest, "little")
    return tuple([(words >> 32 * i & _WORD) % bits for i in range(hashes)])


def mix64s(x: Words) -> Words:
    """Vectorised :func:`mix64`: ``(n,)`` in, a new ``(n,)`` ``uint64`` out."""
    x = x ^ (x >> np.uint64(30))
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x


def hash_ids(identifiers: Words, dom: int) -> Words:
    """Vectorised :func:`hash_id`: ``(n, 2)`` ``uint64`` in, ``(n,)`` ``uint64`` out."""
    return mix64s(mix64s(identifiers[:, 0] ^ np.uint64(dom)) ^ identifiers[:, 1])


def shards_of(pseudonyms: Words, shards: int) -> Words:
    """Vectorised :func:`shard_of`: ``(n, 2)`` in, ``(n,)`` ``uint64`` in ``[0, shards)`` out."""
    return hash_ids(pseudonyms, SHARD) % np.uint64(shards)
