"""The aggregator's own ledger of a pseudonym, for ``sotto ledger``.

It is read from a state directory without its lock, also while a run is under way. A pseudonym lives
in one budget period; once that is closed its state is gone, and only the period's totals remain.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mechanisms.coins import shard_of
from pipelines.aggregation.audit import ChainLine, audit, chains_of
from pipelines.aggregation.state import State
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest
from pipelines.storage.states import StoredStates
from sotto.errors import ParameterError
from sotto.wire.reasons import Reason

#: How often manifest and states are read, if a commit comes between the two.
_ATTEMPTS = 10


@dataclass(frozen=True)
class PseudonymLedger:
    """An aggregator's account of one pseudonym in one budget period."""

    pseudonym: str  #: hexadecimal
    #: The budget period, ms since the epoch.
    period_start: int
    period_end: int
    #: Micro-epsilon of the reports that count, and of every payload seen.
    accepted: int
    observed: int
    budget: int  #: micro-epsilon above which a pseudonym is revoked
    revoked: str | None  #: why no report of it counts; None if they do
    chains: tuple[ChainLine, ...]


def pseudonym_ledger(
    state_dir: str | os.PathLike[str], pseudonym_hex: str
) -> tuple[PseudonymLedger, ...]:
    """Return the ledgers that a state directory has of a pseudonym: mostly of one period, or none.

    ``state_dir``: of ``sotto aggregate``. ``pseudonym_hex``: 32 hexadecimal digits.

    Raises ParameterError if that is no pseudonym, AggregationError if there is no state directory
    or it is damaged.
    """
    try:
        pseudonym = bytes.fromhex(pseudonym_hex)
    except ValueError:
        pseudonym = b""
    if len(pseudonym) != 16:
        raise ParameterError("a pseudonym is written as 32 hexadecimal digits")
    directory = StateDirectory(state_dir)
    for _ in range(_ATTEMPTS - 1):
        manifest = directory.manifest()
        try:
            return _ledgers(directory, manifest, pseudonym)
        except FileNotFoundError:
            if directory.manifest().generation == manifest.generation:
                raise
    return _ledgers(directory, directory.manifest(), pseudonym)


def _ledgers(
    directory: StateDirectory, manifest: Manifest, pseudonym: bytes
) -> tuple[PseudonymLedger, ...]:
    if not manifest.plans:
        return ()
    registry = directory.plans.registry(manifest.plans)
    shard = shard_of(pseudonym, registry.shards)
    states = StoredStates(directory.files, registry, manifest.key)
    found: list[PseudonymLedger] = []
    for (period, part), held in sorted(manifest.states.items()):
        if part == shard % manifest.parts[period]:
            found += _of_state(states.read(period, part, held), pseudonym)
    return tuple(found)


def _of_state(state: State, pseudonym: bytes) -> Iterator[PseudonymLedger]:
    """Yield the ledger of a pseudonym in a state, if the state has seen it."""
    found = audit(state)
    wanted = np.frombuffer(pseudonym, dtype="<u8")
    registry = state.registry
    for at in np.flatnonzero((found.pseudonym == wanted).all(axis=1)).tolist():
        reason = int(found.reason[at])
        yield PseudonymLedger(
            pseudonym=pseudonym.hex(),
            period_start=state.period * registry.period,
            period_end=(state.period + 1) * registry.period,
            accepted=int(found.accepted[at]),
            observed=int(found.observed[at]),
            budget=registry.budget,
            revoked=Reason(reason).label if reason else None,
            chains=tuple(chains_of(state, pseudonym)),
        )
