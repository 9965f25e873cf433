"""Whether counts can be those of what was sent: nothing acknowledged lost, nothing twice.

A *bucket* is one value of the fleet: what its levels count together is 0 or 1, and 1 as soon as one
of them was acknowledged; then at that level or a newer one. Counts come from a state directory, or
out of published estimates. Beside them, whether the aggregator's audit is what devices have spent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.fleet import LEVELS, METRICS, SECOND, SYMBOLS, Fleet
from clientsdk.ledger import read_file
from mechanisms.estimators.poisoning import pair_columns
from pipelines.aggregation import counts
from pipelines.aggregation.audit import audit as audit_of
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.aggregation.rows import NEWEST
from pipelines.results.documents import WindowDocument
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.states import StoredStates
from sotto.plan.compiled import CompiledMetric
from sotto.plan.registry import Registry

Windows = Iterable[tuple[WindowKey, Matrix]]

#: So many reports at most are looked for in one bucket of published estimates.
_MOST = 3
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """Buckets by what became of them."""

    #: Buckets of which at least one level was sent, or acknowledged.
    sent: int
    acknowledged: int
    #: How often buckets count; ``more`` has also those that count less than 0.
    once: int
    zero: int
    more: int
    #: Acknowledged, and count zero.
    lost: int
    #: Count, at an older level than one that was acknowledged.
    older: int
    #: Count, at a level that was never sent.
    unsent: int
    #: Counts in buckets that are nobody's.
    stray: int

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, and nothing counts twice or has come from nowhere."""
        return not (self.more or self.lost or self.older or self.unsent or self.stray)


def judge(
    counted: NDArray[np.int64],
    sent: NDArray[np.uint8],
    acknowledged: NDArray[np.uint8],
    stray: int = 0,
) -> Verdict:
    """Compare counts, of shape (METRICS, n, LEVELS), with what was sent.

    ``sent`` and ``acknowledged`` have the levels of every device as bits; ``stray`` is what else is
    counted.
    """
    total = counted.sum(axis=2)
    sound = ((counted == 0) | (counted == 1)).all(axis=2) & (total <= 1)
    once, zero = sound & (total == 1), sound & (total == 0)
    at = counted.argmax(axis=2)
    newest = NEWEST[acknowledged].astype(np.int64) - 1
    return Verdict(
        sent=METRICS * int(np.count_nonzero(sent)),
        acknowledged=METRICS * int(np.count_nonzero(acknowledged)),
        once=int(np.count_nonzero(once)),
        zero=int(np.count_nonzero(zero)),
        more=int(np.count_nonzero(~sound)),
        lost=int(np.count_nonzero(zero & (acknowledged != 0))),
        older=int(np.count_nonzero(once & (at < newest))),
        unsent=int(np.count_nonzero(once & (sent >> at & 1 == 0))),
        stray=stray,
    )


def spread(windows: Windows, fleet: Fleet, devices: int) -> tuple[NDArray[np.int64], int]:
    """Return counts by metric, device that has begun and level, and the sum of what is no device's.

    Each window, of whatever metric, has counts of shape (LEVELS, SYMBOLS).
    """
    place = {metric.index: number for number, metric in enumerate(fleet.metrics)}
    seconds = -(-devices // SYMBOLS)
    dense = np.zeros((METRICS, seconds, LEVELS, SYMBOLS), dtype=np.int64)
    stray = 0
    for key, matrix in windows:
        if key.fingerprint == fleet.plan.fingerprint and key.metric in place:
            second, rest = divmod(key.start - fleet.base, SECOND)
            if rest == 0 and 0 <= second < seconds:
                dense[place[key.metric], second] += matrix
            else:
                stray += int(np.abs(matrix).sum())
    found = dense.transpose(0, 1, 3, 2).reshape(METRICS, seconds * SYMBOLS, LEVELS)
    return found[:, :devices], stray + int(np.abs(found[:, devices:]).sum())


def windows_of(state: StateDirectory) -> Windows:
    """Yield all that a state directory has counted."""
    for page, generation in state.manifest().pages.items():
        body = files.load(state.files.page(page, generation), counts.KIND)
        for key, window in counts.unpack_page(body).items():
            # Pairs of levels follow the counts.
            yield key, window.counts[:, : -pair_columns(len(window.counts))]


class UnexplainedError(Exception):
    """Published estimates that no counts of few reports a bucket give."""


def published_windows(
    documents: Iterable[WindowDocument], fleet: Fleet
) -> Iterator[tuple[WindowKey, Matrix]]:
    """Yield the counts behind published windows of the fleet's metrics.

    An estimated share is (Σ g_l · (c_l − n_l · q_l)) / n over levels l, with n_l reports of a
    level, c_l of them with the symbol, and g_l = 1 / (p_l − q_l). Since the numbers of reports are
    published too and the g_l differ, a share determines the few c_l that a bucket can have.
    """
    metrics = {metric.name: metric for metric in fleet.metrics}
    for document in documents:
        window = document.window
        metric = metrics.get(str(window["metric"]))
        if metric is not None:
            start = int(str(window["window_start"]))
            key = WindowKey(fleet.plan.fingerprint, metric.index, start)
            yield key, _counts(metric, window, document.estimates)


def _counts(
    metric: CompiledMetric, window: Mapping[str, object], estimates: Sequence[Mapping[str, object]]
) -> Matrix:
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    reports = window["reports_by_level"]
    assert isinstance(reports, list)
    if not estimates:
        return counted
    ends = [metric.mechanism.probabilities(level)[0] for level in range(LEVELS)]
    gain = np.array([1 / (p - q) for p, q in ends])
    noise = sum(n * q * g for n, (_, q), g in zip(reports, ends, gain, strict=True))
    known = {0.0: (0,) * LEVELS}
    for number in range(1, _MOST + 1):
        for levels in combinations_with_replacement(range(LEVELS), number):
            known[sum(gain[level] for level in levels)] = tuple(map(levels.count, range(LEVELS)))
    sums, vectors = np.array(list(known)), np.array(list(known.values()))
    shares = [row for row in estimates if row["kind"] == "share"]
    places = [metric.symbols[str(row["item"])] for row in shares]
    stated = np.array([float(str(row["value"])) for row in shares]) * sum(reports) + noise
    nearest = np.abs(stated[:, None] - sums[None, :]).argmin(axis=1)
    counted[:, places] = vectors[nearest].T
    off = float(np.abs(stated - sums[nearest]).max(initial=0.0))
    if off > _TOLERANCE or counted.sum(axis=1).tolist() != reports:
        raise UnexplainedError(f"window {window['metric']} {window['window_start']}: {reports}")
    return counted


class Spent(NamedTuple):
    """The amounts that a pseudonym has spent in its budget period, micro-epsilon."""

    period: int
    accepted: int
    observed: int


class Audited(NamedTuple):
    """How many pseudonyms the aggregator knows, and for how many audits differ."""

    pseudonyms: int
    wrong: int


def audit_of_state(directory: StateDirectory, registry: Registry) -> dict[bytes, Spent]:
    """Return what a state directory's open states have for every pseudonym."""
    found: dict[bytes, Spent] = {}
    manifest = directory.manifest()
    states = StoredStates(directory.files, registry, manifest.key)
    for (period, part), held in manifest.states.items():
        audit = audit_of(states.read(period, part, held))
        names = audit.pseudonym.astype("<u8").tobytes()
        for at in range(len(audit.reason)):
            spent = Spent(period, int(audit.accepted[at]), int(audit.observed[at]))
            found[names[16 * at : 16 * at + 16]] = spent
    return found


def audit_of_fleet(fleet: Fleet, counted: NDArray[np.int64]) -> dict[bytes, Spent]:
    """Return what the fleet's devices have spent, by their counts of :func:`spread`."""
    certified = np.array(
        [[each.mechanism.certified(level) for level in range(LEVELS)] for each in fleet.metrics]
    )
    cost = np.einsum("mnl,ml->n", counted, certified.astype(np.int64))
    return {
        fleet.pseudonym(device): Spent(
            fleet.event(device) // fleet.plan.period, int(cost[device]), int(cost[device])
        )
        for device in np.flatnonzero(cost).tolist()
    }


def compare_audits(
    state: Mapping[bytes, Spent], fleet: Mapping[bytes, Spent], devices: Iterable[Path]
) -> Audited:
    """Compare the aggregator's audit with the fleet's and with the ledgers in real devices' files.

    Wrong are pseudonyms of the fleet whose audit is not what their counts cost, and ledger periods
    of real devices, which have sent everything, that have no pseudonym with the same amount, or the
    other way round.
    """
    wrong = sum(state.get(name) != spent for name, spent in fleet.items())
    theirs = {name: spent for name, spent in state.items() if name not in fleet}
    nameless: Counter[Spent] = Counter()
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
                nameless[spent] += 1
    rest = Counter(theirs.values())
    wrong += sum(((rest - nameless) + (nameless - rest)).values())
    return Audited(len(state), wrong)
