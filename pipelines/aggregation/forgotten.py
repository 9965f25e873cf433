"""Forgotten pseudonyms: how one is taken out of a state, and its later reports are rejected.

A person may ask that a pseudonym of a device be forgotten (``sotto forget``). Its counted reports
are taken back, and nothing of it stays but a keyed hash. By this hash its later reports are
recognized and rejected; only their number is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.rows import LEVEL_COUNT
from pipelines.aggregation.state import State
from pipelines.aggregation.step import Stepped, Tally, retracted
from sotto.errors import FormatError
from sotto.wire.decode import Batch, Reject
from sotto.wire.format import pseudonym_of
from sotto.wire.reasons import Reason


def tombstone(key: bytes, pseudonym: bytes) -> str:
    """Return what stays of a forgotten pseudonym: 32 hexadecimal digits."""
    made = hashlib.blake2b(pseudonym, digest_size=16, key=key, person=b"sotto.forgotten")
    return made.hexdigest()


@dataclass(frozen=True)
class Forgotten:
    """The tombstones of a state directory."""

    key: bytes  #: the key of the state directory, by which pseudonyms are hashed
    tombstones: frozenset[str] = frozenset()

    def split(self, batches: Iterable[Batch]) -> tuple[list[Batch], list[Reject]]:
        """Return batches without forgotten pseudonyms, and rejects that count their reports."""
        kept: list[Batch] = []
        rejects: list[Reject] = []
        for batch in batches:
            mask = self.mask(batch.pseudonym) if self.tombstones else np.zeros(0, dtype=np.bool_)
            if mask.any():
                append = int(batch.append[mask].max())
                rejects.append(Reject(Reason.FORGOTTEN, b"", append, int(mask.sum())))
                batch = batch[~mask]
            kept.append(batch)
        return kept, rejects

    def without_bytes(self, rejects: Sequence[Reject]) -> list[Reject]:
        """Return rejects; those of forgotten pseudonyms become FORGOTTEN and lose their bytes."""
        if not self.tombstones:
            return list(rejects)
        return [
            Reject(Reason.FORGOTTEN, b"", each.append, each.rows) if self.has(each) else each
            for each in rejects
        ]

    def has(self, reject: Reject) -> bool:
        """Return whether a message is of a forgotten pseudonym; a damaged one may be of nobody."""
        try:
            return tombstone(self.key, pseudonym_of(reject.message)) in self.tombstones
        except FormatError:
            return False

    def mask(self, pseudonyms: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which rows of (n, 2) halves of pseudonyms are forgotten."""
        different, at = np.unique(pseudonyms.astype("<u8", copy=False), axis=0, return_inverse=True)
        found = [tombstone(self.key, each.tobytes()) in self.tombstones for each in different]
        mask: NDArray[np.bool_] = np.array(found, dtype=np.bool_)[at.reshape(-1)]
        return mask


def ids_of(state: State, pseudonyms: Collection[bytes]) -> NDArray[np.intp]:
    """Return the ids that a state has for some pseudonyms; none for those that it does not know."""
    low, high = state.pseudonyms["low"], state.pseudonyms["high"]
    wanted = [np.frombuffer(each, dtype="<u8") for each in pseudonyms]
    found = [np.flatnonzero((low == one) & (high == other)) for one, other in wanted]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)


def forget(state: State, pseudonyms: Collection[bytes], append: int) -> Stepped | None:
    """Take pseudonyms out of a state; None if it has none of them.

    Returns the state without them, the counts that are taken back, and one reject, with the append
    time ``append``, ms, for the number of their reports that had not been rejected before, if any.
    """
    ids = ids_of(state, pseudonyms)
    if not ids.size:
        return None
    gone = np.zeros(state.pseudonyms.size, dtype=np.bool_)
    gone[ids] = True
    entries, revoked = state.entries, state.pseudonyms["reason"] != 0
    theirs = gone[entries["pseudonym"]]
    live = theirs & ~revoked[entries["pseudonym"]]
    known = int(LEVEL_COUNT[entries["countable"][live]].sum(dtype=np.int64))
    counted = np.flatnonzero(theirs & (entries["counted"] != 0))
    tally = Tally(
        counted=-counted.size,
        superseded=counted.size - known,
        revoked=-int(np.count_nonzero(revoked[ids])),
    )
    rejects = [Reject(Reason.FORGOTTEN, b"", append, known)] if known else []
    return Stepped(state.without(gone), retracted(state, counted), rejects, tally)
