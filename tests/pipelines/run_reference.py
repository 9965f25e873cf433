"""The result that aggregating a log must have, by ``decode_reference`` and ``step_reference``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from decode_reference import reference_decode
from log_records import records_of
from numpy.typing import NDArray
from step_reference import Row, Rules, Vectors, count_vectors

from pipelines.aggregation.counts import WindowKey
from pipelines.aggregation.pairs import columns
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason


class Expected(NamedTuple):
    """Counts by window, audits by period, and how many reports of each fate."""

    counts: dict[WindowKey, list[list[int]]]
    audits: dict[int, tuple[int, int, int, int]]
    fates: Counter[str]


def expected(log: Path, registry: Registry) -> Expected:
    """Apply the rules to a log without segments."""
    rules, fates = Rules(registry), Counter[str]()
    periods: dict[int, list[Row]] = defaultdict(list)
    for row in _rows(log, registry, fates):
        periods[row.event // registry.period].append(row)
    reports: Counter[tuple[object, ...]] = Counter()
    pairs: Counter[tuple[Row, int, bool]] = Counter()
    audits = {}
    for period, rows in periods.items():
        reports.update(row.report for row in rules.counted(rows).values())
        pairs += rules.pairs(rows)
        audit = rules.audit(rows).values()
        audits[period] = (
            len(audit),
            sum(each.accepted for each in audit),
            sum(each.observed for each in audit),
            sum(bool(each.reason) for each in audit),
        )
        fates["revoked"] += rules.rejected(rows)
    fates["counted"] = reports.total()
    vectors = count_vectors(reports, pairs, registry, _halves)
    return Expected(_by_window(vectors, registry), audits, fates)


def _rows(log: Path, registry: Registry, fates: Counter[str]) -> Iterator[Row]:
    """Yield the rows that the step is given, and count all by what becomes of them before."""
    records = records_of(log)
    accepted, rejected, untimely = reference_decode(
        [each.body for each in records], [each.append for each in records], registry
    )
    for reason, _, _, rows in rejected:
        fates[Reason(reason).label] += rows or 1
    fates["reports"] = len(accepted) + len(untimely)
    for timely, decoded in ((True, accepted), (False, untimely)):
        for metric, level, pseudonym, chain, event, append, payload, cell in decoded:
            period = event // registry.period
            over = (period + 1) * registry.period + registry.horizon <= append
            if timely or not (over or period > append // registry.period):
                ids = (int.from_bytes(each, "little") for each in (pseudonym, chain))
                yield Row(*ids, metric, event, level, payload, timely, append, cell)


def _halves(identifier: int) -> list[int]:
    """Return the lower and the upper 64 bits of an id."""
    return [identifier % 2**64, identifier // 2**64]


def _by_window(vectors: Vectors, registry: Registry) -> dict[WindowKey, list[list[int]]]:
    counts: dict[WindowKey, NDArray[np.int64]] = {}
    for (number, start, _, level), vector in vectors.items():
        _, fingerprint, _, metric = registry.metrics[number]
        shape = metric.mechanism.levels, columns(metric.mechanism)
        key = WindowKey(fingerprint, metric.index, start)
        counts.setdefault(key, np.zeros(shape, dtype=np.int64))[level] = vector
    return {key: matrix.tolist() for key, matrix in counts.items()}
