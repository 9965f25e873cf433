"""The contents of pages: the results of one revision, each part read once and when it is needed.

Nothing is written, and no lock is taken. Results are read from the database alone; from a state
directory only the plans and the note of the last run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from pipelines.alerts.watch import AlertWatch
from pipelines.results.fields import grouped
from pipelines.results.notes import TimeNote
from pipelines.results.ordinals import ASKED, BOUNDS, asked_of, metrics_of, readable
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.records import Alarm, EstimateRecord, MetricKey, Window
from pipelines.storage.directory import LastRun
from pipelines.web.boards import Board
from pipelines.web.watching import JobReading, JobWatch
from sotto.plan.compiled import CompiledMetric, CompiledPlan

T = TypeVar("T")

#: How many of the newest windows a table and a chart show.
MOST_WINDOWS, MOST_DRAWN = 60, 400
#: The most figures that stand for a metric, and their kinds.
HEADLINES = 3
HEADLINE_KINDS = (*ASKED, "share", "mean", "missing", "string", "group", "unexplained")
#: How many windows' estimates, and how many metrics' windows, are kept.
_KEPT = 64


def _read_once(read: Callable[[ResultsReader], T]) -> cached_property[T]:
    """Return a property of a snapshot that is read from its results when it is first needed."""
    return cached_property(lambda snapshot: read(snapshot.reader))


@dataclass(eq=False, repr=False)
class ResultsSnapshot:
    """The results of one revision.

    ``revision`` is the site's, ``state`` the state directory. ``watch`` looks for alerts and
    ``job_watch`` at the job, if there are such. ``notes`` are those on the axes of time; each of
    ``boards`` has a page.
    """

    reader: ResultsReader
    revision: str
    state: Path | None = None
    watch: AlertWatch | None = None
    job_watch: JobWatch | None = None
    notes: Sequence[TimeNote] = ()
    boards: Sequence[Board] = ()

    def __post_init__(self) -> None:
        self._estimates = lru_cache(maxsize=_KEPT)(self._read)
        #: Returns the windows of all reports of a metric, oldest first; none of an unknown one.
        self.windows = lru_cache(maxsize=_KEPT)(self._windows_of)

    @cached_property
    def newest(self) -> dict[MetricKey, list[Window]]:
        """The windows that :meth:`ResultsReader.newest_windows` returns, by metric.

        Newer versions of a plan come first; a metric's newest window is the last of its list.
        """
        found = grouped(self.reader.newest_windows(), lambda window: window.key)
        order = {key: at for at, key in enumerate(self._metrics)}
        last = len(order)
        ordered = sorted(found, key=lambda key: (order.get(key, last), key[:2], -key[2], key[3]))
        return {key: found[key] for key in ordered}

    @cached_property
    def headlines(self) -> dict[MetricKey, list[EstimateRecord]]:
        """The estimates that may stand for each metric, in the window that is shown of it."""
        return self._headlines(so_far=False)

    @cached_property
    def so_far(self) -> dict[MetricKey, list[EstimateRecord]]:
        """The estimates that may stand for each metric whose newest window is still open."""
        return self._headlines(so_far=True)

    def _headlines(self, *, so_far: bool) -> dict[MetricKey, list[EstimateRecord]]:
        found = self.reader.newest_estimates(HEADLINE_KINDS, HEADLINES, so_far=so_far)
        asked = {
            row.key: replace(row, kind=figure[0], item=figure[1])
            for row in found
            if (figure := asked_of(self.metric_of(row.key))) is not None
        }
        others = [row for row in readable(found, self.metric_of) if row.kind not in ASKED]
        return grouped([*self.courses([*asked.values()], 1), *others], lambda row: row.key)

    def courses(self, of: Sequence[EstimateRecord], lengths: int) -> list[EstimateRecord]:
        """Return what :meth:`ResultsReader.courses` does, also for figures computed from others."""
        sources = [replace(row, kind=ASKED.get(row.kind, row.kind)) for row in of]
        wanted = {(row.key, row.kind) for row in of}
        found = readable(self.reader.courses(sources, lengths), self.metric_of)
        return [row for row in found if (row.key, row.kind) in wanted]

    #: How many reports count, in all windows of all metrics.
    reports = _read_once(ResultsReader.reports)
    #: The state of the results and of their jobs, by collector.
    health = _read_once(ResultsReader.health)
    #: The audit of every budget period, oldest first.
    budgets = _read_once(ResultsReader.budgets)
    #: Rejected reports by reason.
    rejections = _read_once(ResultsReader.rejections)
    #: How the arms of experiments differ over all their windows.
    effects = _read_once(ResultsReader.effects)

    def _windows_of(self, key: MetricKey) -> list[Window]:
        if key not in self.newest:
            return []
        return self.reader.windows(Chosen(**key._asdict(), segment=""))

    @cached_property
    def plans(self) -> list[CompiledPlan]:
        """The plans that are known, the newest version of each first."""
        found = sorted(self.reader.plans(), key=lambda plan: -plan.version)
        return sorted(found, key=lambda plan: (plan.collector, plan.plan))

    @cached_property
    def _metrics(self) -> dict[MetricKey, CompiledMetric]:
        return metrics_of(self.plans)

    @cached_property
    def alarms(self) -> dict[tuple[MetricKey, datetime], list[Alarm]]:
        """Reports that honest devices do not send, by metric and start of the window."""
        return grouped(self.reader.alarms(), lambda each: (each.key, each.window_start))

    @property
    def last_run(self) -> LastRun | None:
        """The note of the last run, if there is a state directory that has one."""
        return None if self.state is None else LastRun.of(self.state)

    @property
    def job(self) -> JobReading | None:
        """The last reading of the job."""
        return None if self.job_watch is None else self.job_watch.last

    def plan_of(self, key: MetricKey) -> CompiledPlan | None:
        """Return a metric's plan, if it is known."""
        same = (plan for plan in self.plans if (plan.collector, plan.plan, plan.version) == key[:3])
        return next(same, None)

    def metric_of(self, key: MetricKey) -> CompiledMetric | None:
        """Return a metric as its plan declares it, if the plan is known."""
        return self._metrics.get(key)

    def estimates(self, window: Window) -> list[EstimateRecord]:
        """Return the estimates of a window, in order, those of segments after those of all."""
        return self._estimates(window.key, window.window_start)

    def _read(self, key: MetricKey, start: datetime) -> list[EstimateRecord]:
        rows = self.reader.estimates(Chosen(**key._asdict(), starts=[start]))
        return readable(rows, self.metric_of)

    def segments(self, window: Window) -> dict[str, Window]:
        """Return the rows of a window by segment; that of all reports has the name ""."""
        chosen = Chosen(**window.key._asdict(), starts=[window.window_start])
        return {each.segment: each for each in self.reader.windows(chosen)}

    def history(
        self,
        key: MetricKey,
        figures: Sequence[tuple[str, str]],
        windows: Sequence[Window],
        segment: str | None = "",
        *,
        brief: bool = False,
    ) -> dict[tuple[str, str, str], dict[datetime, EstimateRecord]]:
        """Return estimates of a metric in some windows: by kind, item and segment, then by start.

        ``figures``: kinds and items; ``segment``: None for every segment; ``brief``: without lists.
        """
        found: dict[tuple[str, str, str], dict[datetime, EstimateRecord]] = {}
        wanted: dict[str, list[str]] = {}
        for kind, item in figures:
            bounds = BOUNDS if (kind, item) == ("mean", "") else ()
            wanted.setdefault(ASKED.get(kind, kind), []).extend([*bounds, item])
        starts = [each.window_start for each in windows]
        chosen = Chosen(**key._asdict(), segment=segment, starts=starts, brief=brief)
        for kind, items in wanted.items():
            only = replace(chosen, kind=kind, items=items)
            for each in readable(self.reader.estimates(only), self.metric_of):
                name = (each.kind, each.item, each.segment)
                found.setdefault(name, {})[each.window_start] = each
        return found
