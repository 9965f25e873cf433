"""Figures that moved are found once in the results as they are, and kept as they were found."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from moving_results import DAY, PLAN, RIPE, START, WEEK, MovingResults, compiled, when
from receiver import calling

from pipelines.alerts import kept as file
from pipelines.alerts.configuration import Configuration, Holiday, MetricWatched
from pipelines.alerts.evaluation import judge, smoothed
from pipelines.alerts.kept import MOST_ALERTS, Kept
from pipelines.alerts.series import read_series
from pipelines.alerts.watch import AlertWatch
from pipelines.results.reader import ResultsReader
from sotto.errors import AggregationError, ParameterError
from sotto.plan.compile import parse_plan

#: One false alarm in 20 years.
RED = Configuration(
    false_alarms_per_year=0.05, metrics=(MetricWatched(metric="colour", items=("red",)),)
)
NOISE = 0.02
WEEK_LONG = timedelta(days=7)


def steady(windows, level=0.2, seed=1):
    """A figure that does not move: (value, standard error) by window."""
    draw = np.random.default_rng(seed)
    return [(float(value), NOISE) for value in draw.normal(level, NOISE, windows)]


@pytest.fixture
def results(tmp_path):
    return MovingResults(tmp_path)


def watching(results, configuration=RED, **more):
    return AlertWatch(results.reader(), configuration, results.folder / "alerts.json", **more)


def test_a_planted_shift_is_new_once(results):
    results.write({"red": steady(30)})
    watch = watching(results)
    assert watch.look().new == []
    # The series after a shift of seven standard errors.
    results.write({"red": steady(3, 0.34)}, first=30)
    (alert,) = watch.look().new
    assert (alert.metric, alert.direction) == ("colour", "up")
    assert (alert.kind, alert.item) == ("share", "red")
    assert (alert.since, alert.window_start) == (when(30), when(30 + alert.windows - 1))
    assert alert.windows <= alert.predicted_windows
    assert alert.low < 0.14 < alert.high
    assert alert.expected == pytest.approx(0.2, abs=0.02)
    assert alert.sigma == pytest.approx(
        alert.change / ((alert.high - alert.low) / 2 / 1.96), rel=1e-3
    )
    assert (alert.figures, alert.revision) == (1, 2)
    assert alert.windows_between_false_alarms == pytest.approx(20 * 365.25 / 7)
    assert watch.look().new == []
    assert [each.id for each in watch.kept().alerts] == [alert.id]
    assert alert.sentence().startswith(
        "colour red rose from 19.7 % by 15.5 points (95 %: 12.4 points to "
    )


def test_revised_windows_do_not_alarm_twice_and_an_alert_stays_as_it_was(results):
    results.write({"red": steady(30)})
    watch = watching(results)
    watch.look()
    results.write({"red": steady(2, 0.34)}, first=30)
    (alert,) = watch.look().new
    # Late reports sharpen the windows of the shift; the level is somewhat different now.
    results.write({"red": [(0.33, NOISE / 2)] * 4}, first=30)
    assert watch.look().new == []
    (after,) = watch.kept().alerts
    assert after.standing
    assert after.model_dump() == alert.model_dump()
    # At last it turns out that nothing has moved.
    results.write({"red": [(0.2, NOISE / 4)] * 4}, first=30)
    assert watch.look().new == []
    (after,) = watch.kept().alerts
    assert not after.standing
    assert after.change == alert.change


def test_what_lies_further_back_is_listed_and_not_sent(results):
    """When a figure is looked at for the first time; not so a window that is revised later."""
    sent = []
    results.write({"red": [*steady(30), *steady(10, 0.4, seed=2)]})
    watch = watching(results, notifiers=calling(lambda alert, now: sent.append(alert)))
    (old,) = watch.look().new
    assert (old.since, old.news, sent, old.deliveries) == (when(30), False, [], {})
    # Reports of three older windows come late, and show a shift that was none.
    results.write({"red": [(0.8, NOISE)] * 3}, first=35, clock=START + 40 * WEEK + RIPE)
    looked = watch.look()
    assert [alert.since for alert in looked.new] == [when(35), when(38)]
    # That the figure is back at its level was seen before.
    assert [alert.since for alert in sent] == [when(35)]
    assert looked.undelivered == 0


def test_a_shift_in_the_newest_window_is_sent_the_first_time(results):
    results.write({"red": [*steady(30), *[(0.5, NOISE)] * 2]})
    (alert,) = watching(results).look().new
    assert (alert.since, alert.window_start) == (when(30), when(31))


def test_a_window_is_judged_once_its_last_level_is_due(results):
    """That is a day and the resolution after its end; or as the configuration says."""
    end = START + 31 * WEEK
    results.write({"red": [*steady(29), *[(0.5, NOISE)] * 2]}, clock=end + RIPE - 1)
    assert watching(results).look().new == []
    at_once = RED.model_copy(update={"settle": 0})
    assert len(judge(read_series(results.reader(), at_once), at_once)[0].found.shifts) == 1
    results.write({"red": steady(1)}, clock=end + RIPE)
    assert len(watching(results).look().new) == 1


def test_withheld_and_missing_windows_are_passed_over(results):
    series = steady(20)
    series[5] = None
    results.write({"red": series})
    results.write({"red": [(0.5, NOISE)] * 2}, first=25)
    (series_read,) = read_series(results.reader(), RED)
    assert np.flatnonzero(np.isnan(series_read.values)).tolist() == [5, 20, 21, 22, 23, 24]
    assert series_read.revisions[5] == 1
    assert series_read.revisions[20] == 0
    (alert,) = watching(results).look().new
    assert alert.since == when(25)


def test_versions_of_a_plan_are_taken_together(results):
    """As the estimate over all their reports; half of the reports are of each."""
    results.write({"red": steady(20)})
    other = MovingResults(results.folder, version=2)
    other._generation = 1
    other.write({"red": [(0.4, NOISE)]}, first=19)
    plans = [compiled(), compiled().__class__.from_json(compiled().to_json())]
    reader = ResultsReader(results.url, plans=plans)
    settled = RED.model_copy(update={"settle": DAY})
    (series,) = read_series(reader, settled)
    assert series.values[19] == pytest.approx((steady(20)[19][0] + 0.4) / 2)
    assert series.errors[19] == pytest.approx(NOISE / math.sqrt(2))


def test_false_alarms_are_shared_among_all_figures_that_are_unbiased(results):
    results.write({"red": steady(20), "blue": steady(20, 0.8, seed=3), "likely": [None] * 20})
    for allowed, years in ((1, 2), (4, 0.5)):
        named = Configuration(false_alarms_per_year=allowed)
        judged = judge(read_series(results.reader(), named), named)
        assert [each.series.figure.item for each in judged] == ["blue", "red"]
        assert [each.years for each in judged] == pytest.approx([years, years])


def test_segments_are_watched_instead_of_all_reports_where_that_is_asked_for(results):
    results.write({"red": steady(20)}, segment="os=linux")
    for segments, names in ((False, ["colour red"]), (True, ["colour red, os=linux"])):
        wanted = Configuration(metrics=(MetricWatched(metric="colour", segments=segments),))
        found = read_series(results.reader(), wanted)
        assert [each.figure.name for each in found] == names


def test_of_two_answers_one_is_watched_unless_both_are_named(results):
    results.write({"false": steady(9, 0.8), "true": steady(9)})
    found = read_series(results.reader(), Configuration())
    assert [each.figure.item for each in found] == ["true"]
    named = Configuration(metrics=(MetricWatched(metric="colour", items=("false", "true")),))
    assert len(read_series(results.reader(), named)) == 2


def test_the_smoothed_series_is_cut_at_a_shift(results):
    results.write({"red": [(0.2, NOISE)] * 20 + [(0.5, NOISE)] * 10})
    (judged,) = judge(read_series(results.reader(), RED), RED)
    np.testing.assert_allclose(smoothed(judged).values, [0.2] * 20 + [0.5] * 10)


def test_a_metric_without_results_or_with_an_unknown_plan_is_an_error(results):
    results.write({"red": steady(3)})
    for more, said in (
        ({"metric": "color"}, "the metric 'color'; did you mean 'colour'"),
        ({"metric": "colour", "kinds": ("mean",)}, "the kind 'mean'; there are share"),
        ({"metric": "colour", "items": ("reed",)}, "the item 'reed'; did you mean 'red'"),
    ):
        with pytest.raises(ParameterError, match=f"results of {said}"):
            read_series(results.reader(), Configuration(metrics=(MetricWatched(**more),)))
    # A version of the plan lists it: it has no windows yet, or none any more.
    both = MetricWatched(metric="colour", items=("red", "blue", "red to blue"))
    [series] = read_series(results.reader(), Configuration(metrics=(both,)))
    assert series.figure.item == "red"
    # Candidates of strings come and go with a file.
    listed = "category, domain: [red, blue], outside: blue"
    strings = [parse_plan(PLAN.replace(listed, "string")).compile()]
    reed = Configuration(metrics=(MetricWatched(metric="colour", items=("reed",)),))
    assert read_series(ResultsReader(results.url, plans=strings), reed) == []
    with pytest.raises(ParameterError, match="settle"):
        read_series(ResultsReader(results.url), RED)


def test_the_file_is_not_written_over_when_it_is_damaged(tmp_path):
    path = tmp_path / "alerts.json"
    path.write_text('{"version": 2}')
    with pytest.raises(AggregationError, match=r"1 faults\): restore it"), file.changing(path):
        raise AssertionError("unreachable")
    assert path.read_text() == '{"version": 2}'


def test_the_oldest_alerts_go(results):
    results.write({"red": [*steady(30), *[(0.5, NOISE)] * 2]})
    (alert,) = watching(results).look().new
    kept = Kept(alerts=[alert])
    kept.add([alert.model_copy(update={"id": str(n)}) for n in range(MOST_ALERTS)])
    assert [kept.alerts[0].id, kept.alerts[-1].id] == ["0", str(MOST_ALERTS - 1)]


def test_a_failed_delivery_waits_longer_each_time_and_is_given_up(results):
    results.write({"red": [*steady(30), *[(0.5, NOISE)] * 2]})
    (alert,) = watching(results).look().new
    delivery = file.Delivery(next=alert.raised)
    waits = []
    for _ in range(12):
        delivery.failed(alert.raised, alert.raised, "refused")
        waits.append((delivery.next - alert.raised).total_seconds())
    assert waits[:3] == [10, 20, 40]
    assert waits[-1] == 3600
    delivery.failed(datetime.now(UTC) + timedelta(days=8), alert.raised, "refused")
    assert (delivery.next, delivery.attempts) == (None, 13)


def test_windows_of_a_holiday_are_neither_judged_nor_learned_from(results):
    """A dip of two weeks is an alert; named, it is none."""
    results.write({"red": [*steady(30), *[(0.05, NOISE)] * 2, *steady(10, seed=2)]})
    (unnamed,) = judge(read_series(results.reader(), RED), RED)
    assert [shift.onset for shift in unnamed.found.shifts] == [30]
    days = Holiday(name="summer", first=when(30).date(), last=when(31).date())
    named = RED.model_copy(update={"holidays": (days,)})
    (judged,) = judge(read_series(results.reader(), named), named)
    assert (judged.found.shifts, judged.found.judged) == ((), unnamed.found.judged - 2)
    # The series still has them, for the page to draw.
    assert judged.series.values[30] == pytest.approx(0.05)
    assert np.flatnonzero(judged.series.holidays).tolist() == [30, 31]


def test_a_season_that_is_named_hides_no_shift(results):
    """A pattern of four weeks, of five errors, and a shift of five."""
    pattern = np.tile([0.1, 0.0, 0.0, -0.1], 16)
    pattern[60:] += 0.1
    noisy = zip(steady(64), pattern, strict=True)
    results.write({"red": [(value + more, NOISE) for (value, _), more in noisy]})

    def found(season):
        red = MetricWatched(metric="colour", items=("red",), season=season)
        named = RED.model_copy(update={"metrics": (red,)})
        return judge(read_series(results.reader(), named), named)[0].found.shifts

    assert [shift.onset for shift in found("28d")] == [60]
    assert found(None) == ()
    with pytest.raises(ParameterError, match=r"2 to 200 of its windows, each 7d long; got 10d"):
        found("10d")


def test_a_yearly_holiday_touches_windows_of_all_years():
    days = Holiday(name="new year", first=date(2024, 12, 24), last=date(2025, 1, 1), yearly=True)
    first = datetime(2026, 12, 17, tzinfo=UTC)
    touched = [days.touches(first + n * WEEK_LONG, first + (n + 1) * WEEK_LONG) for n in range(4)]
    assert touched == [False, True, True, False]
    once = days.model_copy(update={"yearly": False})
    assert not once.touches(first + WEEK_LONG, first + 2 * WEEK_LONG)


def test_figures_that_move_together_are_one_message(results):
    """The clearest speaks for the others; one that moves by itself later is another message."""
    sent = []
    level = {"red": (0.2, 0.5), "blue": (0.5, 0.35), "green": (0.3, 0.3)}
    before = {name: steady(30, low, seed=n) for n, (name, (low, _)) in enumerate(level.items())}
    results.write(before)
    all_items = Configuration(false_alarms_per_year=0.05, page="https://results.example/")
    watch = watching(results, all_items, notifiers=calling(lambda alert, now: sent.append(alert)))
    watch.look()
    results.write({name: [(high, NOISE)] * 3 for name, (_, high) in level.items()}, first=30)
    new = {alert.item: alert for alert in watch.look().new}
    assert new.keys() == {"red", "blue"}
    assert [alert.item for alert in sent] == ["red"]
    assert new["blue"].told_by == new["red"].id
    assert new["red"].others == [new["blue"].sentence()]
    assert f"  at the same time {new['blue'].sentence()}" in new["red"].paragraph()
    assert f"  {new['red'].course}" in new["red"].paragraph()
    assert f"  https://results.example/alerts#{new['red'].id}" in new["red"].paragraph()
