"""Which of many signed messages are what they must be: one signature each, one pseudonym each.

It is decided message by message from the message's own bytes, so that neither the order of
messages nor anything that was seen before can change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from sotto.plan.registry import Registry
from sotto.wire.format import TRAILER
from sotto.wire.groups import Groups, records_at
from sotto.wire.signatures import PUBLIC_KEY_BYTES, SIGNED_TAG, is_valid, signed_pseudonym

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The fields that all rows begin with, whatever their width.
_ROW = np.dtype([("level", "u1"), ("pseudonym", "V16"), ("chain", "V16"), ("event", "<i8")])
_TAG = np.uint64(int.from_bytes(SIGNED_TAG, "little"))
#: So many verifications, 4 ms, are worth a thread.
_ENOUGH = 64
_TAG_MASK = np.uint64((1 << 8 * len(SIGNED_TAG)) - 1)


def forged(
    data: NDArray[np.uint8],
    messages: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    groups: Groups,
    registry: Registry,
) -> NDArray[np.int64]:
    """Return those of some signed messages (indices of shape (k,)) that do not count.

    All rows of a message must be of one pseudonym and one budget period, the pseudonym must
    commit to the message's public key for that period, and the signature must be valid. The
    messages are known to be exactly their groups and a trailer. ``begins`` and ``ends`` of shape
    (m,) say where every message begins and where its last group ends.
    """
    chosen = np.zeros(len(begins), dtype=np.bool_)
    chosen[messages] = True
    of_group, starts = groups.where(chosen[groups.message]).places()
    message = groups.where(chosen[groups.message]).message[of_group]
    rows = records_at(data, starts, _ROW)
    periods = rows["event"] // registry.period
    first = np.zeros(len(begins), dtype=np.int64)
    # Assigned backward, so that what stays is the first.
    first[message[::-1]] = np.arange(len(message))[::-1]
    same = rows["pseudonym"] == rows["pseudonym"][first[message]]
    same &= periods == periods[first[message]]
    bad = np.zeros(len(begins), dtype=np.bool_)
    bad[message[~same]] = True

    def is_forged(number: int) -> bool:
        row = first[number]
        return not _is_authentic(
            data[begins[number] : ends[number] + TRAILER].tobytes(),
            rows["pseudonym"][row].tobytes(),
            int(periods[row]),
            registry.collector,
        )

    left = messages[~bad[messages]]
    bad[left] = _on_all_cores(is_forged, left.tolist())
    return np.flatnonzero(bad)


def _on_all_cores(work: Callable[[int], bool], numbers: list[int]) -> list[bool]:
    """Return what comes of each number; other threads run during a verification."""
    threads = min(_cores(), len(numbers) // _ENOUGH)
    if threads < 2:
        return [work(number) for number in numbers]
    with ThreadPoolExecutor(threads) as pool:
        parts = [numbers[each::threads] for each in range(threads)]
        found = list(pool.map(lambda part: [work(number) for number in part], parts))
    return [found[each % threads][each // threads] for each in range(len(numbers))]


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
