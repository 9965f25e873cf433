"""Keyed hashes of ids and payloads: what the state finds its entries by.

The key is drawn once for a deployment and never leaves it. Tags stand for payloads when two are
compared, so they bound the probability that two different ones pass for one. Hashes of ids only
say where a table looks first: it verifies full keys, and ids whose hashes meet, which differ in
a way that the mixing is known to favour, cost a probe more and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mechanisms.coins import mix64s
from mechanisms.randomness import SystemSource

KEY_BYTES = 16

#: Payloads of up to this many bytes are their own tag: two of them never share one.
EXACT_BYTES = 4


def new_key() -> bytes:
    """Return a fresh random key of 16 bytes, for a new deployment."""
    return SystemSource().bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "little")


def keyed_hash(key: bytes, columns: Sequence[NDArray[np.generic]]) -> NDArray[np.uint64]:
    """Hash rows of integer columns to 64 bits, to begin a search for them.

    Parameters
    ----------
    key : bytes
        16 bytes.
    columns : sequence of (n,) integer arrays
        At least one; a row is hashed from its value in each of them, in this order.

    Returns
    -------
    (n,) uint64
    """
    first = np.uint64(int.from_bytes(key[:8], "little"))
    second = np.uint64(int.from_bytes(key[8:KEY_BYTES], "little"))
    hashes = mix64s(columns[0].astype(np.uint64) ^ first)
    for column in columns[1:]:
        hashes = mix64s(hashes ^ column.astype(np.uint64))
    return mix64s(hashes ^ second)


def payload_tags(key: bytes, payloads: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return a 32-bit tag of each payload; equal payloads have equal tags.

    Parameters
    ----------
    key : bytes
        16 bytes.
    payloads : (n, width) uint8
        Payloads of one width, without padding.

    Returns
    -------
    (n,) uint32
        The payload itself, little-endian, up to 4 bytes; above, a multilinear hash: the upper half
        of c0 + c1 w1 + c2 w2 + ... mod 2**64, of the payload's 32-bit words w and of coefficients
        c that SHAKE-256 draws from the key. Two different payloads chosen without knowledge of
        the key, such as by someone who only sends reports, share a tag with probability at most
        2**-32 over the coefficients, whatever their difference.

    References
    ----------
    Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
    arithmetic without primes", STACS 1996. Lemire and Kaser, "Strongly universal string hashing
    is fast", The Computer Journal 57 (2014): the family called Multilinear.
    """
    n, width = payloads.shape
    padded = np.zeros((n, -(-width // EXACT_BYTES) * EXACT_BYTES), dtype=np.uint8)
    padded[:, :width] = payloads
    words = padded.view("<u4")
    if width <= EXACT_BYTES:
        return words[:, 0].astype(np.uint32, copy=False)
    constant, *coefficients = _coefficients(key, words.shape[1])
    sums = np.full(n, constant, dtype=np.uint64)
    for word, coefficient in zip(words.T, coefficients, strict=True):
        sums += word * coefficient
    return (sums >> np.uint64(32)).astype(np.uint32)


@lru_cache(maxsize=256)
def _coefficients(key: bytes, words: int) -> NDArray[np.uint64]:
    """Return the coefficients for payloads of so many words, the constant first."""
    drawn = hashlib.shake_256(b"sotto.tag\0" + key).digest(8 * (words + 1))
    return np.frombuffer(drawn, "<u8").astype(np.uint64, copy=False)
