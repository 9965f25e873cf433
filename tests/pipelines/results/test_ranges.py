"""Which windows and segments a range puts together, and that it is made of published tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from step_plans import PERIOD, category, plan

from pipelines.results.fields import moment
from pipelines.results.range_windows import WindowRange, WindowRun, runs_of
from pipelines.results.records import RangeComparison, Window
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan

WEEK = timedelta(milliseconds=PERIOD)
FIRST = moment(2800 * PERIOD)
SYSTEMS = {"segments": [{"name": "os", "values": ["linux", "mac", "win"]}]}
TWO = {
    "segments": [{"name": "os", "values": ["linux", "mac"]}, {"name": "app", "values": ["1", "2"]}]
}
FEW = "7 reports, the plan asks for 20"


def made(version: int = 1, **changes: object) -> CompiledPlan:
    return plan(version, 10, {**category("colour", 2, 1), "window": PERIOD}, **changes)


def windows(
    of: CompiledPlan, *weeks: Mapping[str, str | None], open_last: bool = False
) -> list[Window]:
    """Return rows of windows: by week and segment, why it is withheld, if it is."""
    found = []
    for at, segments in enumerate(weeks):
        for segment, withheld in {"": None, **segments}.items():
            start = FIRST + at * WEEK
            complete = not (open_last and at == len(weeks) - 1)
            found.append(
                Window(
                    *(of.collector, of.plan, of.version, "colour"),
                    *(start, start + WEEK, segment, "category", "grr", 100, (100,), 20),
                    *(withheld, 1, complete),
                )
            )
    return found


def runs(wanted: WindowRange, rows: Sequence[Window], of: CompiledPlan) -> dict[str, WindowRun]:
    return {run.segment: run for run in runs_of(wanted, rows, [of])}


def week(number: int) -> datetime:
    return FIRST + number * WEEK


def test_a_range_has_the_windows_that_lie_within_it() -> None:
    of, hour = made(), timedelta(hours=1)
    rows = windows(of, {}, {}, {}, {}, {"": FEW}, {}, open_last=True)
    everything = runs(WindowRange("colour"), rows, of)[""]
    assert [each.window_start for each in everything.windows] == [week(at) for at in range(4)]
    assert everything.left_out == 2
    inner = runs(WindowRange("colour", week(1), week(3)), rows, of)[""]
    assert [each.window_start for each in inner.windows] == [week(1), week(2)]
    # A window in which the range begins, or ends, is no part of it.
    cut = runs(WindowRange("colour", week(1) - hour, week(3) + hour), rows, of)[""]
    assert cut.windows == inner.windows
    assert inner.left_out == cut.left_out == 0


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (week(3), week(1), "must end after it begins"),
        (week(2), week(2), "must end after it begins"),
        (week(9), None, "no window of 'colour' lies from .*the first begins at 2023-08-31"),
        (week(1), week(2) - timedelta(hours=1), "no window of 'colour' lies from .* to .*7d"),
        (week(4), week(6), "every window of 'colour' from .* is withheld, or not complete"),
    ],
)
def test_a_range_without_windows_is_refused_with_what_there_is(
    since: datetime, until: datetime | None, said: str
) -> None:
    of = made()
    rows = windows(of, {}, {}, {}, {}, {"": FEW}, {}, open_last=True)
    with pytest.raises(ParameterError, match=said):
        runs_of(WindowRange("colour", since, until), rows, [of])


def test_a_range_needs_results_and_their_plan() -> None:
    of = made()
    with pytest.raises(ParameterError, match="no results of 'delay'"):
        runs_of(WindowRange("delay"), [], [of])
    with pytest.raises(ParameterError, match=r"need the plan 'step' version 1.*--plan"):
        runs_of(WindowRange("colour"), windows(of, {}), [made(version=2)])


def test_segments_are_those_of_the_coarsest_partition() -> None:
    of = made(**SYSTEMS)
    all_three = {"os=linux": None, "os=mac": None, "os=win": None}
    union = {**all_three, "os=linux": FEW, "os=mac": FEW, "os=linux or mac": None}
    rows = windows(of, all_three, union, all_three)
    found = runs(WindowRange("colour", by="os"), rows, of)
    assert sorted(found) == ["os=linux or mac", "os=win"]
    assert dict(found["os=linux or mac"].pieces) == {
        week(0): ["os=linux", "os=mac"],
        week(1): ["os=linux or mac"],
        week(2): ["os=linux", "os=mac"],
    }
    with pytest.raises(ParameterError, match=r"'os=linux' is withheld in.*os=linux or mac, os=win"):
        runs_of(WindowRange("colour", segment="os=linux"), rows, [of])
    without = WindowRange("colour", week(2), segment="os=linux")
    assert [*runs(without, rows, of)] == ["os=linux"]


def test_what_is_withheld_without_a_union_is_in_no_range() -> None:
    of = made(**SYSTEMS)
    shown = {"os=linux": None, "os=mac": None, "os=win": None}
    one = {**shown, "os=win": FEW}
    found = runs(WindowRange("colour", by="os"), windows(of, shown, one), of)
    assert sorted(found) == ["os=linux", "os=mac"]
    # Reports of a window without any of a segment are none, and hide nothing.
    none = {"os=linux": None, "os=mac": None}
    found = runs(WindowRange("colour", by="os"), windows(of, shown, none), of)
    assert [*found["os=win"].pieces] == [week(0)]


def test_a_window_without_segments_is_left_out_of_ranges_by_segment() -> None:
    of = made(**SYSTEMS)
    shown = {"os=linux": None, "os=mac": None}
    rows = windows(of, shown, dict.fromkeys(shown, FEW), {}, shown)
    found = runs(WindowRange("colour", by="os"), rows, of)["os=linux"]
    assert [each.window_start for each in found.windows] == [week(0), week(3)]
    assert found.left_out == 2
    assert len(runs(WindowRange("colour"), rows, of)[""].windows) == 4


def test_pairs_of_attributes_are_joined_as_well() -> None:
    of = made(**TWO)
    pairs = [f"os={os},app={app}" for os in ("linux", "mac", "other") for app in ("1", "2")]
    shown: dict[str, str | None] = dict.fromkeys(pairs)
    first = {**shown, pairs[0]: FEW, pairs[1]: FEW, "os=linux,app=1 or 2": None}
    across = {**shown, pairs[0]: FEW, pairs[2]: FEW, "os=linux or mac,app=1": None}
    both = runs(WindowRange("colour", by="app,os"), windows(of, shown, first), of)
    assert sorted(both) == sorted([*pairs[2:], "os=linux,app=1 or 2"])
    three = runs(WindowRange("colour", by="os,app"), windows(of, first, across), of)
    joined = "os=linux,app=1 or os=linux,app=2 or os=mac,app=1"
    assert sorted(three) == sorted([*pairs[3:], joined])
    named = runs(WindowRange("colour", segment="app=2,os=mac"), windows(of, shown), of)
    assert [*named] == ["os=mac,app=2"]


def test_unknown_segments_are_refused_with_those_that_there_are() -> None:
    of = made(**SYSTEMS)
    rows = windows(of, {"os=linux": None, "os=mac": None})
    with pytest.raises(ParameterError, match="results by 'app'; there are results by os"):
        runs_of(WindowRange("colour", by="app"), rows, [of])
    with pytest.raises(ParameterError, match=r"'os=beos' is withheld .* os=linux, os=mac"):
        runs_of(WindowRange("colour", segment="os=beos"), rows, [of])
    with pytest.raises(ParameterError, match="there are none by segment"):
        runs_of(WindowRange("colour", by="os"), windows(of, {}), [of])


def test_versions_of_a_plan_without_the_segments_are_left_out() -> None:
    first, second = made(), made(version=2, **SYSTEMS)
    rows = [*windows(first, {}), *windows(second, {}, {"os=linux": None, "os=mac": None})]
    found = runs_of(WindowRange("colour", by="os"), rows, [first, second])
    assert [(run.key[2], run.segment) for run in found] == [(2, "os=linux"), (2, "os=mac")]
    both = runs_of(WindowRange("colour"), rows, [first, second])
    assert [(run.key[2], len(run.windows)) for run in both] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("against", "others", "start", "moved"),
    [(0.01, 49_000, 1, 0.0311), (0.0198, 50_000, 0, 0.0304), (0.5, 1_000, 0, 0.0)],
)
def test_chance_in_who_answers_moves_two_ranges_and_a_segment_against_all(
    against, others, start, moved
):
    """As 200,000 draws of 1,000 people of a segment, and of 49,000 others, do."""
    of = {"unit": "share", "kind": "share", "low": 0.4, "value": 0.5, "reports": 1_000}
    more = {"against": against, "against_reports": others, "start": 0, "against_start": start}
    more |= {"segment": "os=mac", "against_segment": "", "standard_error": 0.0}
    row = SimpleNamespace(**of, **more)
    assert RangeComparison.by_who_answered.fget(row) == pytest.approx(moved, rel=0.01, abs=1e-9)
