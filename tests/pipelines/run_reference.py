"""The result that aggregating a log must have: scalar decoding, and ``step_reference``'s rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from step_reference import Row, Rules

from mechanisms.base import Mechanism
from pipelines.aggregation.counts import WindowKey
from pipelines.aggregation.pairs import columns
from sotto.errors import FormatError
from sotto.log.reader import LogReader, LogRecord, partitions
from sotto.plan.registry import Registry
from sotto.wire.format import decode_message


class Expected(NamedTuple):
    """Counts by window, audits by period, and how many reports of each fate."""

    counts: dict[WindowKey, list[list[int]]]
    audits: dict[int, tuple[int, int, int, int]]
    fates: Counter[str]


def expected(log: Path, registry: Registry) -> Expected:
    """Apply the rules to a log whose only damage is what the time or the plan is wrong at."""
    rules, fates = Rules(registry), Counter[str]()
    periods: dict[int, list[Row]] = defaultdict(list)
    for row in _rows(log, registry, fates):
        periods[row.event // registry.period].append(row)
    chosen: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    audits = {}
    pairs: Counter[tuple[Row, int, bool]] = Counter()
    for period, rows in periods.items():
        pairs += rules.pairs(rows)
        for row in rules.counted(rows).values():
            start = row.event // registry.metrics[row.metric].metric.window
            chosen[row.metric, start, row.level].append(row)
        audit = rules.audit(rows).values()
        audits[period] = (
            len(audit),
            sum(each.accepted for each in audit),
            sum(each.observed for each in audit),
            sum(bool(each.reason) for each in audit),
        )
        fates["revoked"] += rules.rejected(rows)
    fates["counted"] = sum(map(len, chosen.values()))
    return Expected(_counts(chosen, pairs, registry), audits, fates)


def _rows(log: Path, registry: Registry, fates: Counter[str]) -> list[Row]:
    rows = []
    for lane in partitions(log):
        for record in LogReader(lane).records():
            assert isinstance(record, LogRecord)
            rows += _message(record, registry, fates)
    return rows


def _message(record: LogRecord, registry: Registry, fates: Counter[str]) -> list[Row]:
    try:
        message = decode_message(record.body)
    except FormatError:
        fates["malformed"] += 1
        return []
    if message.fingerprint not in registry.by_fingerprint:
        fates["unknown_plan"] += 1
        return []
    rows = []
    first = next(r.id for r in registry.metrics if r.fingerprint == message.fingerprint)
    for run in message.groups:
        metric = registry.metrics[first + run.metric].metric
        for level, pseudonym, chain, event, payload in run.rows:
            if level >= metric.mechanism.levels:
                fates["impossible_level"] += 1
                continue
            fates["reports"] += 1
            late = event < record.append - metric.horizon
            future = event > record.append + registry.resolution
            fates["late"] += late
            fates["future"] += future
            period = event // registry.period
            over = (period + 1) * registry.period + registry.horizon <= record.append
            timely = not (late or future)
            if not timely and (over or period > record.append // registry.period):
                continue
            rows.append(
                Row(
                    pseudonym=int.from_bytes(pseudonym, "little"),
                    chain=int.from_bytes(chain, "little"),
                    metric=first + run.metric,
                    event=event,
                    level=level,
                    payload=payload,
                    countable=timely,
                    append=record.append,
                )
            )
    return rows


def _counts(
    chosen: dict[tuple[int, int, int], list[Row]],
    pairs: Counter[tuple[Row, int, bool]],
    registry: Registry,
) -> dict[WindowKey, list[list[int]]]:
    counts: dict[WindowKey, NDArray[np.int64]] = {}
    for (metric, start, level), rows in chosen.items():
        _, fingerprint, plan, compiled = registry.metrics[metric]
        mechanism = compiled.mechanism
        key = WindowKey(fingerprint, compiled.index, start * compiled.window)
        matrix = counts.setdefault(key, np.zeros(_shape(mechanism), dtype=np.int64))
        matrix[level, : mechanism.count_length] = mechanism.accumulate(
            np.array([list(row.payload) for row in rows], dtype=np.uint8),
            _ids([row.chain for row in rows]),
            _ids([row.pseudonym for row in rows]),
            np.zeros(len(rows), dtype=np.int64),
            1,
        )[0]
        assert plan.fingerprint == fingerprint
    for (row, lower, equal), times in pairs.items():
        _, fingerprint, _, compiled = registry.metrics[row.metric]
        mechanism, start = compiled.mechanism, row.event // compiled.window * compiled.window
        at = mechanism.count_length + 2 * lower
        key = WindowKey(fingerprint, compiled.index, start)
        counts[key][row.level, at : at + 2] += (times, times * equal)
    return {key: matrix.tolist() for key, matrix in counts.items()}


def _shape(mechanism: Mechanism) -> tuple[int, int]:
    return mechanism.levels, columns(mechanism)


def _ids(numbers: list[int]) -> NDArray[np.uint64]:
    halves = [(number & (2**64 - 1), number >> 64) for number in numbers]
    return np.array(halves, dtype=np.uint64)
