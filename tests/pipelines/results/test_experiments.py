"""One result of an experiment over its windows: what is added, by what variance, and how sure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plan_texts import plan_head
from scipy import stats
from statistical import check_at_least

from mechanisms.experiments import Scored, difference
from mechanisms.looks import arm_variance, boundaries, drift_of
from pipelines.results.experiments import effects_of
from pipelines.results.fields import moment
from pipelines.results.records import ArmEffect, EstimateRecord
from pipelines.web import formats
from pipelines.web.pages import PAGES
from pipelines.web.rendering import ServedLinks, make
from pipelines.web.views import PageView
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

pytestmark = pytest.mark.slow

SEED, EXPERIMENTS, WEEK = 26, 400, 7 * 86_400_000
#: When the first window begins, on 2026-01-08, and how many there are.
START, WINDOWS = 20_454 // 7 * WEEK + WEEK, 12
ARMS = "experiment: {name: trial, arms: [a, b]}\n"
DECIDED = ARMS.replace(
    "}", ", decision: {metric: dark, start: 2026-01-08, end: 2026-04-01, looks: 4}}"
)
METRICS = """\
  page: {type: string, window: 7d, ladder: [{epsilon: 2}]}
  delay:
    {type: number, range: [0, 9], unit: s, outside: clip, mechanism: duchi, window: 7d,
     ladder: [{epsilon: 2}]}
  dark: {type: boolean, window: 7d, ladder: [{epsilon: 2}]}
"""


def plan_of(arms: str = ARMS, metrics: str = METRICS, **more: object) -> CompiledPlan:
    head = plan_head("trial", (40, 4000), **{"period": "7d", **more})
    return parse_plan(head.replace("metrics:", arms + "metrics:") + metrics).compile()


PLAN, PLANNED = plan_of(), plan_of(DECIDED)


def row(plan: CompiledPlan, metric: str, at: int, **fields: Any) -> EstimateRecord:
    nothing: dict[str, Any] = dict.fromkeys(EstimateRecord.__dataclass_fields__)
    window = plan.metric(metric).window
    start = START + at * window
    named = {"collector": plan.collector, "plan": plan.plan, "version": 1, "metric": metric}
    times = {"window_start": moment(start), "window_end": moment(start + window)}
    return EstimateRecord(**{**nothing, **named, **times, "complete": True, **fields})


def rows_of(
    plan: CompiledPlan, metric: str, windows: Sequence[Sequence[tuple[int, float]]]
) -> list[EstimateRecord]:
    """Return the rows of windows, of which the reports and the average of each arm are given."""
    found, items = [], [""] if plan.metric(metric).range else ["false", "true"]
    of_window = partial(row, plan, metric)
    for at, arms in enumerate(windows):
        for name, (reports, _) in zip("ab", arms, strict=True):
            arm = {"segment": f"trial={name}", "reports": reports}
            found.append(of_window(at, kind="arm_share", **arm))
        for item in items:
            signed = -1 if item == "false" else 1
            means = [float(item == "false") + signed * mean for _, mean in arms]
            pairs = tuple((n, m) for (n, _), m in zip(arms, means, strict=True))
            named = {"kind": "difference", "item": item, "segment": "trial=b", "unit": "share"}
            figures = {"value": means[1] - means[0], "reports": sum(n for n, _ in arms)}
            found.append(of_window(at, arms=pairs, **named, **figures))
    return found


def of_metric(plan: CompiledPlan, rows: list[EstimateRecord], metric: str = "dark") -> ArmEffect:
    (found,) = (each for each in effects_of(plan, rows) if each.metric == metric)
    return found


EVEN = [[(1000, 0.3), (1000, 0.34)], [(1200, 0.28), (1100, 0.33)], [(900, 0.31), (1000, 0.3)]]


def test_counts_are_added_and_compared_once_with_the_repeats_that_there_can_be() -> None:
    effect = of_metric(PLAN, rows_of(PLAN, "dark", EVEN))
    scores = PLAN.metric("dark").mechanism.scores(0)
    low, high = scores.values
    pair = []
    for which in (0, 1):
        n = sum(window[which][0] for window in EVEN)
        total = sum(window[which][0] * window[which][1] for window in EVEN)
        yes = (total - n * low) / (high - low)
        pair.append(Scored("share", "true", scores.values, np.array([n - yes, yes])))
    expected = difference(*pair, repeats=3)
    assert (effect.value, effect.low, effect.high) == pytest.approx(expected[:3])
    assert (effect.item, effect.windows, effect.reports, effect.repeats) == ("true", 3, 6200, 3)
    assert effect.first == pytest.approx(pair[0].mean)
    assert (effect.start, effect.end) == (moment(START), moment(START + 3 * WEEK))
    assert (effect.look, effect.decided_at, effect.arms_p_value) == (None, None, 1.0)


@pytest.mark.parametrize(
    ("more", "repeats"),
    [
        ({"period": "84d"}, 1),
        ({"panel": "1/13"}, 2),
        ({"period": "1d"}, 21),
        ({"period": "14d"}, 2),
    ],
)
def test_how_often_a_device_can_report_follows_from_periods_and_panels(
    more: dict[str, object], repeats: int
) -> None:
    plan = plan_of(**more)
    assert of_metric(plan, rows_of(plan, "dark", EVEN)).repeats == repeats


def test_windows_that_are_not_complete_or_withheld_do_not_count() -> None:
    rows = rows_of(PLANNED, "dark", EVEN)
    last = moment(START + 2 * WEEK)
    open_ = [replace(each, complete=each.window_start < last) for each in rows]
    assert of_metric(PLANNED, open_).windows == 2
    hidden = [
        replace(each, value=None, arms=None, withheld="few") if each.window_start == last else each
        for each in rows
    ]
    effect = of_metric(PLANNED, hidden)
    assert (effect.windows, effect.left_out) == (2, 1)
    before = [
        replace(each, window_start=each.window_start - (last - moment(START))) for each in rows
    ]
    assert of_metric(PLANNED, before).windows == 1


def test_what_cannot_be_compared_says_why() -> None:
    effects = {each.metric: each for each in effects_of(PLAN, [])}
    assert str(effects["page"].withheld).startswith("several strings set the same bit")
    assert effects["dark"].withheld.startswith("no window is complete yet: look again after")
    assert [*effects] == ["page", "delay", "dark"]
    assert next(effects_of(PLANNED, [])).metric == "dark"
    earlier = [replace(each, arms=None) for each in rows_of(PLAN, "dark", EVEN)]
    effect = of_metric(PLAN, earlier)
    assert ("earlier release" in str(effect.withheld), effect.left_out) == (True, 3)


def test_planned_looks_are_taken_when_their_windows_are_complete() -> None:
    windows = [[(1000, 0.3), (1000, 0.34)]] * 7
    early = of_metric(PLANNED, rows_of(PLANNED, "dark", windows[:2]))
    assert (early.look, early.looks, early.next_look) == (0, 4, moment(START + 3 * WEEK))
    assert early.boundary is None
    found = of_metric(PLANNED, rows_of(PLANNED, "dark", windows))
    assert (found.look, found.next_look) == (2, moment(START + 9 * WEEK))
    scores: Any = PLANNED.metric("dark").mechanism.scores(0)
    # Both arms vary as reports do of which 0.32 say yes.
    spread = 0.32 * (1 - 0.32)
    noise = scores.variance(0.32) - spread
    errors = [math.sqrt(2 * arm_variance([1000] * n, [spread] * n, [noise] * n)) for n in (3, 6)]
    bounds = boundaries([0.25, 0.5], [error**-2 for error in errors])
    assert found.boundary == pytest.approx(bounds[1])
    assert found.errors == pytest.approx(0.04 / errors[1])
    assert found.look_low == pytest.approx(0.04 - bounds[1] * errors[1])
    assert found.decided_at is None
    # People are told what the planned looks say, and not beside it what another interval says.
    assert (early.told, early.differs) == ((early.value, early.low, early.high), False)
    assert found.told == (found.look_value, found.look_low, found.look_high)
    assert (bool(found.low), found.differs) == (True, False)
    # Seven of twelve windows: more reports make the noise smaller, and not the spread of devices.
    parts = ([spread] * 7, [0.0] * 7), ([0.0] * 7, [noise] * 7)
    kept, anew = (2 * arm_variance([1000] * 7, *each) for each in parts)
    smallest = drift_of(0.8, 4) * math.sqrt(kept + anew * 7 / 12)
    assert found.smallest_found == pytest.approx(smallest)
    far = of_metric(PLANNED, rows_of(PLANNED, "dark", [[(9000, 0.2), (9000, 0.4)]] * 12))
    assert (far.look, far.next_look, far.decided_at, far.differs) == (4, None, 1, True)
    # After the end no report comes in the place of those of a window that was left out.
    every = rows_of(PLANNED, "dark", [[(1000, 0.3), (1000, 0.3)]] * 12)
    ended = of_metric(PLANNED, [row for row in every if row.window_start > moment(START)])
    error = (ended.look_high - ended.look_value) / ended.boundary
    assert ended.smallest_found == pytest.approx(drift_of(0.8, 4) * error)


def test_the_page_says_in_which_metric_nothing_was_found_and_from_which_size_on() -> None:
    rows = rows_of(PLANNED, "dark", [[(1000, 0.3), (1000, 0.3)]] * 12)
    found = [of_metric(PLANNED, rows)]
    snapshot: Any = SimpleNamespace(effects=found, plan_of=lambda _: PLANNED, newest=())
    (page,) = (each for each in PAGES if each.name == "experiments")
    ((_, _, html),) = make(page, PageView(snapshot, ServedLinks())).sections
    assert "b, true: no difference from a in dark was found by the planned end." in html
    smallest = formats.difference(found[0].smallest_found, "share")
    assert f"A true difference of {smallest} would have been found" in html
    assert "reports of both arms" in html


def test_the_noise_of_small_windows_does_not_make_looks_too_sure() -> None:
    """The part that devices keep varies as the average of all windows says, not as each says."""
    noisy = of_metric(PLANNED, rows_of(PLANNED, "dark", [[(20, 0.9)] * 2, [(20, 0.1)] * 2] * 6))
    plain = of_metric(PLANNED, rows_of(PLANNED, "dark", [[(20, 0.5)] * 2] * 12))
    for field in ("look_low", "look_high", "smallest_found"):
        assert getattr(noisy, field) == pytest.approx(getattr(plain, field), rel=1e-3)


def test_a_small_arm_beside_a_large_one_varies_as_its_own_average_says() -> None:
    scores: Any = PLANNED.metric("dark").mechanism.scores(0)
    arms = [(1800, 0.02), (200, 0.5)]
    # In three windows of the same devices, which keep their values.
    variance = sum((2 * m * (1 - m) + scores.variance(m)) / (3 * n) for n, m in arms)
    found = of_metric(PLANNED, rows_of(PLANNED, "dark", [arms] * 3))
    assert found.errors == pytest.approx(0.48 / math.sqrt(variance))


def test_few_reports_do_not_make_looks_too_sure() -> None:
    """Two arms of 20 devices, of which half have the value: all that they can answer."""
    once = DECIDED.replace("2026-04-01, looks: 4", "2026-01-15, looks: 1")
    plan, law = plan_of(once), stats.binom.pmf(range(21), 20, 0.5)
    scores: Any = plan.metric("dark").mechanism.scores(0)
    low, high = scores.values
    averages, wrong = low + (high - low) * np.arange(21) / 20, 0.0
    for one, other in itertools.product(range(21), repeat=2):
        rows = rows_of(plan, "dark", [[(20, averages[one]), (20, averages[other])]])
        if of_metric(plan, rows).decided_at is not None:
            wrong += law[one] * law[other]
    # A variance made of each arm's own average would give 0.08.
    assert wrong == pytest.approx(0.0425, abs=1e-4)


def test_a_permanent_response_is_the_same_noise_in_every_window() -> None:
    constant = "  dark:\n    {type: boolean, window: 7d, repeat: {constant: true},\n     ladder: "
    plan = plan_of(DECIDED, constant + "[{epsilon: 1}, {epsilon: 2}]}\n")
    mechanism, devices = plan.metric("dark").mechanism, 4000
    laws = [mechanism.scores(level) for level in (0, 1)]
    (low, sent), (lost, kept) = ((float(law.no[1]), float(law.yes[1])) for law in laws if law)
    same = (sent - lost) / (kept - lost)
    # Planted: a plan that says nothing of a permanent response.
    fresh = plan_of(DECIDED, "  dark: {type: boolean, window: 7d, ladder: [{epsilon: 1}]}\n")
    random, number = np.random.default_rng(SEED), EXPERIMENTS // 2
    wrong = planted = 0
    for _ in range(number):
        arms, treated = [], random.binomial(devices, 0.5)
        for n in (devices - treated, treated):
            having = random.binomial(n, 0.3)
            answers = random.binomial(having, kept) + random.binomial(n - having, lost)
            yes = random.binomial(answers, same, WINDOWS)
            yes = yes + random.binomial(n - answers, 1 - same, WINDOWS)
            arms.append([(n, float(each / n - low) / (sent - low)) for each in yes])
        rows = rows_of(plan, "dark", [*zip(*arms, strict=True)])
        wrong += of_metric(plan, rows).decided_at is not None
        planted += of_metric(fresh, rows).decided_at is not None
    check_at_least(number - wrong, number, 0.95, label=f"seed {SEED}")
    check_at_least(planted, number, 0.1, label=f"seed {SEED}")
