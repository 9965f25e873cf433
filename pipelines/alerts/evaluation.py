"""Finds the watched figures that moved, and decides which of these are new and are sent."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import numpy as np

from mechanisms.estimators.local_level import Smoothed, smooth
from mechanisms.estimators.shifts import LEAST_RUN, MOST_RUN, Shift, Watched, threshold_of, watch
from pipelines.alerts.configuration import Configuration
from pipelines.alerts.kept import Alert, Figure, Judged, Kept
from pipelines.alerts.series import Series
from pipelines.web.formats import sparkline

_YEAR = timedelta(days=365.25)
#: How many windows of a figure a message draws.
_COURSE = 26


@dataclass(frozen=True, eq=False)
class Judgement:
    """A figure, and what its detector found.

    ``run``: how many windows of the figure pass between two false alarms, on average.
    """

    series: Series
    found: Watched
    run: float

    @property
    def judged(self) -> bool:
        """Whether the figure has windows enough to be judged."""
        return self.found.judged > 0 and math.isfinite(self.found.level)

    @property
    def years(self) -> float:
        """How many years pass between two false alarms of this figure."""
        return self.run * self.series.figure.length / _YEAR


def judge(series: Sequence[Series], configuration: Configuration) -> list[Judgement]:
    """Look for shifts in all figures.

    Every figure gets the same part of the false alarms of a year, spread over its windows of a
    year.
    """
    found = []
    for each in series:
        windows = _YEAR / each.figure.length * len(series)
        run = min(max(windows / configuration.false_alarms_per_year, LEAST_RUN), MOST_RUN)
        threshold = threshold_of(run, learned=True)
        found.append(Judgement(each, watch(*each.judged, threshold, each.drift), run))
    return found


def smoothed(judgement: Judgement) -> Smoothed | None:
    """Return a figure's smoothed series, for display; None if it has no window.

    The parts before and after a shift are smoothed separately, with the drift that the detector
    expects.
    """
    series = judgement.series
    values, errors = series.judged
    if not np.isfinite(values).any():
        return None
    cuts = [0, *(shift.onset for shift in judgement.found.shifts), len(series.values)]
    parts = [
        smooth(values[start:end], errors[start:end], judgement.found.drift)
        for start, end in itertools.pairwise(cuts)
    ]
    return Smoothed(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.errors for part in parts]),
        judgement.found.drift,
        series.drift is None,
    )


def update(
    kept: Kept, judgements: Iterable[Judgement], configuration: Configuration, now: datetime
) -> list[Alert]:
    """Add the shifts that were found to the kept alerts; return the new alerts.

    A shift is not new if an alert of the same direction was raised for windows that overlap its
    own, even if they were revised since. A new alert is *news*, and is sent, if it is about a
    window that was not judged before, or was revised since. For a figure that was never judged it
    is news only if it is about the newest window; older ones are history, and only listed.
    """
    judgements = list(judgements)
    new: list[Alert] = []
    standing: set[str] = set()
    for each in judgements:
        name = each.series.figure.key
        before = kept.judged.get(name)
        known = [alert for alert in kept.alerts if alert.figure == each.series.figure]
        for shift in each.found.shifts:
            same = [alert for alert in known if _same(alert, shift, each.series)]
            standing |= {alert.id for alert in same}
            if same:
                continue
            news = _is_news(each.series, shift, before)
            new.append(_alert(each, shift, len(judgements), configuration, now, news=news))
        end = len(each.series.values)
        revision = max(each.series.revisions)
        kept.judged[name] = Judged(until=each.series.start(end), revision=revision)
    figures = {each.series.figure: each.series for each in judgements}
    for alert in kept.alerts:
        series = figures.get(alert.figure)
        # Alerts of windows that are not looked at any more stay as they are.
        if series is not None and alert.since >= series.first:
            alert.standing = alert.id in standing
    new.sort(key=lambda alert: (alert.window_end, alert.figure))
    _group([alert for alert in new if alert.news])
    kept.add(new)
    kept.evaluated = now
    return new


def _group(alerts: Sequence[Alert]) -> None:
    """Group alerts of a collector whose figures moved at the same time; one is sent for all.

    Two alerts are of one group if their times, from the shift to the window by which it was found,
    overlap, directly or through others of the group. The clearest alert is sent.
    """
    group: list[Alert] = []
    until: datetime | None = None
    for alert in sorted(alerts, key=lambda each: (each.collector, each.since)):
        if until is None or alert.collector != group[0].collector or alert.since >= until:
            _lead(group)
            group, until = [], alert.window_end
        group.append(alert)
        until = max(until, alert.window_end)
    _lead(group)


def _lead(group: Sequence[Alert]) -> None:
    if len(group) > 1:
        leader = max(group, key=lambda each: abs(each.sigma))
        others = [each for each in group if each is not leader]
        leader.others = [each.sentence() for each in sorted(others, key=lambda each: each.figure)]
        for each in others:
            each.told_by = leader.id


def _same(alert: Alert, shift: Shift, series: Series) -> bool:
    """Return whether an alert is about this shift already."""
    direction = _direction(shift)
    starts_before = series.start(shift.onset) <= alert.window_start
    return (
        alert.direction == direction and starts_before and series.start(shift.window) >= alert.since
    )


def _direction(shift: Shift) -> Literal["up", "down"]:
    return "up" if shift.change > 0 else "down"


def _is_news(series: Series, shift: Shift, before: Judged | None) -> bool:
    if before is None:
        return shift.window == len(series.values) - 1
    revised = max(series.revisions[shift.onset : shift.window + 1])
    return series.start(shift.window + 1) > before.until or revised > before.revision


def _alert(
    judgement: Judgement,
    shift: Shift,
    figures: int,
    configuration: Configuration,
    now: datetime,
    *,
    news: bool,
) -> Alert:
    series = judgement.series
    figure = series.figure
    direction = _direction(shift)
    start = series.start(shift.window)
    about = json.dumps([figure.key, direction, start.isoformat()])
    name = hashlib.sha256(about.encode()).hexdigest()[:24]
    page = configuration.page
    shown = series.values[max(0, shift.window + 1 - _COURSE) : shift.window + 1]
    return Alert(
        id=name,
        link=None if page is None else f"{page.rstrip('/')}/alerts#{name}",
        course=sparkline(shown.tolist()),
        raised=now,
        **{name: getattr(figure, name) for name in Figure._fields[:-1]},
        unit=series.unit,
        since=series.start(shift.onset),
        window_start=start,
        window_end=start + figure.length,
        revision=max(series.revisions[shift.onset : shift.window + 1]),
        direction=direction,
        expected=shift.before,
        change=shift.change,
        low=shift.low,
        high=shift.high,
        sigma=shift.change / shift.standard_error,
        false_alarms_per_year=configuration.false_alarms_per_year,
        figures=figures,
        windows_between_false_alarms=judgement.run,
        windows=shift.window - shift.onset + 1,
        predicted_windows=shift.predicted,
        news=news,
    )
