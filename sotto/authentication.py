"""Which of many signed messages are what they must be: one signature each, one pseudonym each.

It is decided message by message from the message's own bytes, so that neither the order of
messages nor anything that was seen before can change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sotto.registry import Registry
from sotto.runs import Runs, records_at
from sotto.signatures import PUBLIC_KEY_BYTES, SIGNED_TAG, is_valid, signed_pseudonym
from sotto.wire import TRAILER

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What all rows begin with, whatever their width.
_ROW = np.dtype([("level", "u1"), ("pseudonym", "V16"), ("chain", "V16"), ("event", "<i8")])
_TAG = np.uint64(int.from_bytes(SIGNED_TAG, "little"))
_TAG_MASK = np.uint64((1 << 8 * len(SIGNED_TAG)) - 1)


def forged(
    data: NDArray[np.uint8],
    messages: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    runs: Runs,
    registry: Registry,
) -> NDArray[np.int64]:
    """Return those of some signed messages that do not count.

    All rows of a message must be of one pseudonym and one budget period, the pseudonym must
    commit to the message's public key for that period, and the signature must be valid.

    Parameters
    ----------
    data : ndarray of uint8
        The buffer.
    messages : ndarray, shape (k,), int64
        Indices of the messages, which are known to be exactly their runs and a trailer.
    begins, ends : ndarray, shape (m,), int64
        Of every message: where it begins, and where its last run ends.
    runs : Runs
        Of all messages.
    registry : Registry
    """
    chosen = np.zeros(len(begins), dtype=np.bool_)
    chosen[messages] = True
    of_run, starts = runs.where(chosen[runs.message]).places()
    message = runs.where(chosen[runs.message]).message[of_run]
    rows = records_at(data, starts, _ROW)
    periods = rows["event"] // registry.period
    first = np.zeros(len(begins), dtype=np.int64)
    # Assigned backward, so that what stays is the first.
    first[message[::-1]] = np.arange(len(message))[::-1]
    same = rows["pseudonym"] == rows["pseudonym"][first[message]]
    same &= periods == periods[first[message]]
    bad = np.zeros(len(begins), dtype=np.bool_)
    bad[message[~same]] = True
    for number in messages[~bad[messages]].tolist():
        row = first[number]
        pseudonym, period = rows["pseudonym"][row].tobytes(), int(periods[row])
        bad[number] = not _is_authentic(
            data[begins[number] : ends[number] + TRAILER].tobytes(),
            pseudonym,
            period,
            registry.collector,
        )
    return np.flatnonzero(bad)


def _is_authentic(message: bytes, pseudonym: bytes, period: int, collector: str) -> bool:
    """Whether a pseudonym commits to a message's key, and the key has signed the message."""
    key = message[-TRAILER:][:PUBLIC_KEY_BYTES]
    # A hash is a hundred times cheaper than a signature.
    if signed_pseudonym(collector, period, key) != pseudonym:
        return False
    end = PUBLIC_KEY_BYTES - TRAILER
    return is_valid(key, message[end:], message[:end])


def commit_to_keys(pseudonyms: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which pseudonyms, of shape (n, 2), need a signature."""
    needed: NDArray[np.bool_] = (pseudonyms[:, 0] & _TAG_MASK) == _TAG
    return needed
