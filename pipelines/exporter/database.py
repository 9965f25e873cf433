"""A database of results: reports, budgets and the newest windows, read in one transaction."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import sqlalchemy as sql

from mechanisms.estimators.poisoning import KINDS
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.records import Alarm, Budget, EstimateRecord, Health, MetricKey, Window

#: How many series an estimate makes: its value, standard error and two ends.
SERIES = 4


class NewestWindow(NamedTuple):
    """The newest windows of a metric."""

    window: Window  #: the newest complete one; the newest one if none is complete
    last: Window  #: the newest one, complete or not


@dataclass(frozen=True)
class Projected:
    """A reading of a collector's results."""

    health: Health
    levels: Mapping[MetricKey, tuple[int, ...]]  #: metric to the reports that count, by level
    windows: Mapping[MetricKey, NewestWindow]  #: metric to its newest window
    estimates: Sequence[EstimateRecord]  #: of the newest windows, the first of every metric first
    omitted: int  #: estimates beyond the limit
    #: Metric and kind of alarm to the number of windows with it, of the newest two.
    alarms: Mapping[tuple[MetricKey, str], int]
    #: How many reports were rejected, by reason, and how many of these were requeued since, if that
    #: is known.
    rejected: Mapping[str, int]
    requeued: Mapping[str, int]
    periods: Sequence[Budget]  #: oldest first
    size: int | None = None  #: bytes of a SQLite database
    #: Topic and partition to the offset that the sink reads next.
    taken: Mapping[tuple[str, int], int] | None = None


class WatchedResults:
    """A database of results, read again only if it has changed.

    ``max_series``: the most series of estimates of a collector.
    """

    def __init__(self, url: str | sql.URL, max_series: int) -> None:
        self._reader = ResultsReader(url, kept=0)
        self._most = max_series // SERIES
        self._last: dict[str, Projected] = {}
        self._lock = threading.Lock()

    def read(self) -> Mapping[str, Projected]:
        """Return a reading of each collector; unchanged results are not read again."""
        with self._lock:
            self._last = self._reader.at_once(self._read)
            return self._last

    def _read(self, reader: ResultsReader) -> dict[str, Projected]:
        found = {}
        for health in reader.health():
            last = self._last.get(health.collector)
            if last is None or last.health.stamp != health.stamp:
                last = _projected(reader, health, self._most)
            taken = None if health.source is None else reader.offsets()
            found[health.collector] = replace(
                last, health=health, size=self._reader.size, taken=taken
            )
        return found


def _projected(reader: ResultsReader, health: Health, most: int) -> Projected:
    """Return the reading of a collector's results."""
    ours = Chosen(collector=health.collector, segment="")
    levels, windows = _windows(reader.windows(ours))
    estimates, omitted = reader.latest(health.collector, most)
    rejections = reader.rejections(ours)
    return Projected(
        health=health,
        levels=levels,
        windows=windows,
        estimates=estimates,
        omitted=omitted,
        alarms=_alarms(reader.alarms(ours), windows),
        rejected={each.reason: each.reports for each in rejections},
        requeued={each.reason: each.requeued for each in rejections if each.requeued is not None},
        periods=reader.budgets(ours),
    )


def _windows(
    rows: Sequence[Window],
) -> tuple[dict[MetricKey, tuple[int, ...]], dict[MetricKey, NewestWindow]]:
    """Return reports by level over all windows, and the newest complete one, of every metric."""
    levels: dict[MetricKey, list[int]] = {}
    found: dict[MetricKey, NewestWindow] = {}
    for row in rows:
        key = row.key
        before = levels.setdefault(key, [0] * len(row.reports_by_level))
        levels[key] = [one + other for one, other in zip(before, row.reports_by_level, strict=True)]
        known = found.get(key)
        newest = known is None or row.complete or not known.window.complete
        found[key] = NewestWindow(row if newest or known is None else known.window, row)
    return {key: tuple(numbers) for key, numbers in levels.items()}, found


def _alarms(
    rows: Sequence[Alarm], windows: Mapping[MetricKey, NewestWindow]
) -> dict[tuple[MetricKey, str], int]:
    """Return how many of the newest two windows of each metric have each kind of alarm."""
    found = dict.fromkeys(itertools.product(windows, KINDS), 0)
    for row in rows:
        key = row.key
        if (key, row.kind) in found:
            last = windows[key].last
            length = last.window_end - last.window_start
            found[key, row.kind] += row.window_start >= last.window_end - 2 * length
    return found
