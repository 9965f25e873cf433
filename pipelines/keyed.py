"""Keyed hashes of ids and payloads: what the state finds its entries by.

The key is drawn once for a deployment, so that nobody outside can choose ids that meet in one
slot of a table or two payloads with one tag. The hashes only find and compare: a table verifies
full keys, and nothing that is counted or sent is derived from them.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Hash rows of integer columns to 64 bits.

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
        The payload itself, little-endian, up to 4 bytes; a keyed hash above, where two different
        payloads share a tag with probability 2**-32.
    """
    n, width = payloads.shape
    word = EXACT_BYTES if width <= EXACT_BYTES else 8
    padded = np.zeros((n, -(-width // word) * word), dtype=np.uint8)
    padded[:, :width] = payloads
    if width <= EXACT_BYTES:
        return padded.view("<u4")[:, 0].astype(np.uint32, copy=False)
    words = padded.view("<u8")
    return (keyed_hash(key, list(words.T)) >> np.uint64(32)).astype(np.uint32)
