"""Forgets a pseudonym, at the request of the person from whose device it is.

This is a commit like a run's, under the same lock. Its intent lists the pseudonyms. In the state
that it commits, their counted reports in open budget periods are taken back, their rows are not in
the states any more, and their messages not in quarantine. A keyed hash of each stays until every
period in which a report of it may come is closed; until then its reports are rejected as
``forgotten``, and only their number is kept. If the process is killed, the next one that takes the
directory finishes the commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import URL

from pipelines.aggregation.forgotten import Forgotten, tombstone
from pipelines.aggregation.quarantine import KIND, unpack
from pipelines.bounded.driver import Driver
from pipelines.bounded.run import opened
from pipelines.maintenance.remembered import note
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent
from pipelines.storage.ledger import PseudonymLedger, pseudonym_ledger
from pipelines.storage.manifest import last_period
from pipelines.storage.states import StoredStates
from sotto.clocks import now_ms
from sotto.errors import AggregationError, ParameterError
from sotto.wire.format import pseudonym_of


@dataclass(frozen=True)
class Held:
    """A state directory's records of a pseudonym."""

    ledgers: tuple[PseudonymLedger, ...]  #: in open budget periods
    quarantined: int  #: messages in quarantine
    forgotten: bool  #: whether it has been forgotten already


def check_pseudonyms(pseudonyms: Sequence[str]) -> tuple[str, ...]:
    """Return pseudonyms in hexadecimal, sorted, each once.

    Raises ParameterError if one is no pseudonym, or if there is none.
    """
    if not pseudonyms:
        raise ParameterError("give a pseudonym at least")
    for at, each in enumerate(pseudonyms, start=1):
        if len(each) != 32 or set(each.lower()) - set("0123456789abcdef"):
            # The given text may be anything: it is not repeated.
            raise ParameterError(f"pseudonym {at} is not written as 32 hexadecimal digits")
    return tuple(sorted({each.lower() for each in pseudonyms}))


def held(state_dir: str | os.PathLike[str], pseudonyms: Sequence[str]) -> dict[str, Held]:
    """Return the records that a state directory has of pseudonyms; it is read without its lock.

    Raises ParameterError if one is no pseudonym, AggregationError if there is no such state.
    """
    names = check_pseudonyms(pseudonyms)
    directory = StateDirectory(state_dir)
    manifest = directory.manifest()
    numbers = dict.fromkeys(names, 0)
    for entry in manifest.quarantine:
        for reject in unpack(files.load(directory.files.quarantine(entry), KIND)):
            for each in names:
                numbers[each] += bytes.fromhex(each) in reject.message
    return {
        each: Held(
            pseudonym_ledger(state_dir, each),
            numbers[each],
            tombstone(manifest.key, bytes.fromhex(each)) in manifest.forgotten,
        )
        for each in names
    }


def forget(
    state_dir: str | os.PathLike[str],
    pseudonyms: Collection[str],
    database: str | URL | None = None,
    checkpoint: Checkpoint = lambda step: None,
    *,
    wait: float = 0.0,
    clock: Callable[[], int] = now_ms,
) -> int:
    """Forget pseudonyms, each 32 hexadecimal digits; return the generation without them.

    ``database``: as for :func:`pipelines.bounded.run.aggregate`. ``wait``: seconds to wait for a
    run that holds the directory. ``clock``: returns the current time, ms; it is used since the
    log's clock may be far behind the device of a pseudonym. A pseudonym that has been forgotten
    already is left as it is.

    Raises ParameterError if one is no pseudonym, AggregationError if it cannot go on; the last
    commit is then intact.
    """
    names = check_pseudonyms(list(pseudonyms))
    StateDirectory(state_dir).manifest()  # Refuses what no run has made.
    with opened(state_dir, (), None, database, checkpoint, wait=wait) as (driver, _):
        if (interrupted := driver.own_interrupted("forget")) is not None:
            driver.commit(interrupted, None)
        manifest = driver.manifest
        if manifest.clock is None:
            raise AggregationError(f"{os.fspath(state_dir)} has counted nothing yet")
        new = tuple(
            each
            for each in names
            if tombstone(manifest.key, bytes.fromhex(each)) not in manifest.forgotten
        )
        last = last_period(max(manifest.clock, clock()), driver.registry)
        made = (tombstone(manifest.key, bytes.fromhex(each)) for each in new)
        # The note is written first, since an older backup may be restored from here on.
        note(state_dir, manifest.state, {**manifest.forgotten, **dict.fromkeys(made, last)})
        checkpoint("noted")
        if new:
            _commit(driver, new, last)
        return driver.manifest.generation


def forget_again(state_dir: str | os.PathLike[str], tombstones: Mapping[str, int]) -> int:
    """Forget the pseudonyms in a state whose tombstones are given; return how many were found.

    ``tombstones``: by tombstone, the last period in which reports of it are rejected. The state
    must not be in use yet: its results are made on the way, and if this is killed, the restore has
    to begin again.
    """
    directory = StateDirectory(state_dir)
    manifest = directory.manifest()
    new = {each: last for each, last in tombstones.items() if each not in manifest.forgotten}
    if not new:
        return 0
    merged = dict(sorted({**manifest.forgotten, **new}.items()))
    directory.write_manifest(replace(manifest, forgotten=merged), lambda step: None)
    with opened(state_dir, (), None, None, lambda step: None) as (driver, _):
        found = _found(driver, Forgotten(manifest.key, frozenset(new)))
        if found:
            _commit(driver, found, max(new.values()))
    return len(found)


def _commit(driver: Driver, pseudonyms: tuple[str, ...], last: int) -> None:
    manifest = driver.manifest
    intent = Intent(
        manifest.generation + 1, manifest.clock, (), forget=pseudonyms, last_period=last
    )
    driver.begin(intent)
    driver.commit(intent, None)


def _found(driver: Driver, forgotten: Forgotten) -> tuple[str, ...]:
    """Return the pseudonyms in states and quarantine that are forgotten."""
    manifest, stored_files = driver.manifest, driver.directory.files
    states = StoredStates(stored_files, driver.registry, manifest.key)
    found: set[bytes] = set()
    for key, stored in manifest.states.items():
        table = states.read(*key, stored).pseudonyms
        rows = np.stack([table["low"], table["high"]], axis=1).astype("<u8", copy=False)
        found |= {each.tobytes() for each in rows[forgotten.mask(rows)]}
    for entry in manifest.quarantine:
        for reject in unpack(files.load(stored_files.quarantine(entry), KIND)):
            if forgotten.has(reject):
                found.add(pseudonym_of(reject.message))
    return tuple(sorted(each.hex() for each in found))
