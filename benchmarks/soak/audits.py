"""Whether the aggregator's audit is what devices have spent, pseudonym by pseudonym."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.fleet import Fleet
from clientsdk.ledger import read_file
from pipelines.aggregation.audit import audit as audited
from pipelines.storage.directory import StateDirectory
from pipelines.storage.states import StoredStates
from sotto.plan.registry import Registry


class Spent(NamedTuple):
    """What a pseudonym has spent in its budget period, micro-epsilon."""

    period: int
    accepted: int
    observed: int


class Audited(NamedTuple):
    """How two audits compare.

    Attributes
    ----------
    pseudonyms : int
        That the aggregator knows.
    spent : int
        Micro-epsilon of all of them, as accepted.
    wrong : int
        Pseudonyms of the fleet whose audit is not what their counts cost, and ledger periods of
        real devices that have no pseudonym with the same amount, or the other way round.
    """

    pseudonyms: int
    spent: int
    wrong: int


def of_state(directory: StateDirectory, registry: Registry) -> dict[bytes, Spent]:
    """Return what a state directory's open states say of every pseudonym."""
    found: dict[bytes, Spent] = {}
    manifest = directory.manifest()
    states = StoredStates(directory.files, registry, manifest.key)
    for (period, part), held in manifest.states.items():
        audit = audited(states.read(period, part, held))
        names = audit.pseudonym.astype("<u8").tobytes()
        for at in range(len(audit.reason)):
            spent = Spent(period, int(audit.accepted[at]), int(audit.observed[at]))
            found[names[16 * at : 16 * at + 16]] = spent
    return found


def of_fleet(fleet: Fleet, counted: NDArray[np.int64]) -> dict[bytes, Spent]:
    """Return what the fleet's devices have spent, by what their values count.

    Parameters
    ----------
    fleet : Fleet
    counted : (METRICS, n, LEVELS) int64
    """
    certified = np.array(
        [
            [metric.mechanism.certified(level) for level in range(counted.shape[2])]
            for metric in fleet.metrics
        ],
        dtype=np.int64,
    )
    cost = np.einsum("mnr,mr->n", counted, certified)
    return {
        fleet.pseudonym(device): Spent(
            fleet.event(device) // fleet.plan.period, int(cost[device]), int(cost[device])
        )
        for device in np.flatnonzero(cost).tolist()
    }


def compare(
    state: Mapping[bytes, Spent], fleet: Mapping[bytes, Spent], devices: Iterable[Path]
) -> Audited:
    """Compare the aggregator's audit with the fleet and with devices' own ledgers.

    Parameters
    ----------
    state, fleet : mapping
        Of :func:`of_state` and :func:`of_fleet`.
    devices : iterable of Path
        Files of real devices that have sent everything.
    """
    wrong = sum(state.get(name) != spent for name, spent in fleet.items())
    theirs = {name: spent for name, spent in state.items() if name not in fleet}
    owed: Counter[Spent] = Counter()
    for path in devices:
        for period in read_file(path).periods:
            if not period.spent:
                continue
            spent = Spent(period.number, period.spent, period.spent)
            name = bytes.fromhex(period.pseudonym or "")
            # A period's pseudonym is erased once it is over; then its amount must be somebody's.
            if name and theirs.pop(name, None) != spent:
                wrong += 1
            elif not name:
                owed[spent] += 1
    rest = Counter(theirs.values())
    wrong += sum(((rest - owed) + (owed - rest)).values())
    return Audited(len(state), sum(each.accepted for each in state.values()), wrong)
