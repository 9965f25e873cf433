"""``sotto design``: what it says, draws and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sinh, sqrt
from xml.etree import ElementTree

import numpy as np
import pytest
from agreed_plans import PLAN_YAML
from plan_texts import plan_head

import sotto_cli
from mechanisms.estimate import Estimate
from mechanisms.estimators.ratios import retention as retention_estimate
from mechanisms.planner.precision import precision, retention
from mechanisms.planner.targets import Assumed
from mechanisms.testing import SeededSource
from sotto.design.answers import DataAssumption, answers, asked_of_plan
from sotto.design.metric import Goal, design, in_panel
from sotto.design.questions import question_of, question_of_metric
from sotto.design.spending import Lifetime
from sotto.plan.compile import parse_plan

LADDER = [500_000, 1_000_000, 2_000_000]
WEEK = 7 * 86_400_000

SVG = "{http://www.w3.org/2000/svg}"


def run(capsys, *arguments):
    status = sotto_cli.main(["design", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_users_asked_for_reach_the_target_and_no_fewer_do():
    asked = question_of("category", LADDER, {"domain_size": 12})
    found = design(asked, Goal("width", 0.02), 100_000)
    for number, level in enumerate(found.levels):
        told = asked.precision(number)
        assert told.width(level.needed) <= 0.02 < told.width(level.needed - 1)
    assert [level.certified for level in found.levels] == LADDER
    assert not found.missed


def test_where_users_miss_the_target_it_says_what_would_do():
    asked = question_of("category", LADDER, {"domain_size": 12})
    found = design(asked, Goal("width", 0.02), 5_000)
    assert found.missed
    assert found.levels[-1].needed > 5_000
    assert precision(asked.alone(found.enough), 0).width(5_000) <= 0.02
    assert precision(asked.alone(found.enough - 1000), 0).width(5_000) > 0.02
    assert found.enough > 2_000_000


def test_the_interval_of_the_estimate_has_the_predicted_width():
    """Through the production randomizer and estimator, at the predicted number of users."""
    asked = question_of("category", LADDER, {"domain_size": 4}, assumed=Assumed(share=0.25))
    found = design(asked, Goal("width", 0.05))
    n = found.users
    ids = SeededSource(7).words(2 * n).reshape(n, 2)
    payloads = asked.mechanism.randomize(np.arange(n) % 4, ids, ids, SeededSource(8))
    counts = np.zeros((3, asked.mechanism.count_length), dtype=np.int64)
    groups = np.zeros(n, dtype=np.int64)
    counts[2] = asked.mechanism.accumulate(payloads[:, 2], ids, ids, groups, 1)[0]
    for estimate in asked.mechanism.frequencies(counts):
        low, high = estimate.interval()
        assert high - low == pytest.approx(0.05, rel=0.05)
        assert estimate.detection_floor == pytest.approx(found.levels[2].floor, rel=1e-6)


def test_every_type_has_a_design():
    given = {
        "category": {"domain_size": 9},
        "boolean": {},
        "string": {"bits": 64},
        "number": {},
        "ordinal": {"domain_size": 5},
        "survey": {},
        "vector": {"dimensions": 4},
        "top_item": {"domain_size": 6},
    }
    for kind, told in given.items():
        asked = question_of(
            kind,
            LADDER,
            told,
            assumed=Assumed(candidates=("a", "b")),
            mechanism="top_response" if kind == "top_item" else None,
        )
        found = design(asked, Goal("error"), 1000)
        errors = [level.error for level in found.levels]
        assert errors == sorted(errors, reverse=True), kind
        assert found.others[0].excess == 0
        assert [other.error for other in found.others if other.spec == asked.spec] == errors[-1:]


def test_a_permanent_response_is_no_level_and_is_paid_once():
    constant = "repeat: {constant: true}\n    ladder: [{epsilon: 0.5}, {epsilon: 1}, {epsilon: 2}]"
    before = PLAN_YAML.index("repeat: {once: first}")
    others = PLAN_YAML[PLAN_YAML.index("  dep_delay:") : PLAN_YAML.index("  distance:")]
    plan = parse_plan(f"{PLAN_YAML[:before]}{constant}\n{others}").compile()
    asked = question_of_metric(plan, plan.metric("carrier"))
    assert (asked.sent, asked.per_user) == (2, 1)
    found = design(asked, Goal(), 1000)
    assert len(found.levels) == 2
    # Nothing with a public coin, which would change from period to period.
    others = {other.spec["name"] for other in found.others}
    assert "grr" in others
    assert "local_hashing" not in others
    # The cost of the permanent response is not left for other periods.
    of_plan = asked_of_plan(plan, {}, DataAssumption(), "dep_delay")
    (panel,) = answers(of_plan, Goal("error"), 1000, panels=(1,)).designs[0].panels
    periods = (plan.ceilings.lifetime - plan.permanent) // plan.recurring
    assert panel.years == pytest.approx(periods * 7 / 365.25)
    assert plan.permanent == 2_000_000


def test_the_command_prints_tables(capsys):
    options = "--type category --domain 50 --ladder 0.5,1,2 --users 100000 --width 0.01"
    status, out, err = run(capsys, *options.split())
    assert (status, err) == (0, "")
    assert "users for width 0.01" in out
    assert "100,000 users miss width 0.01: it takes" in out
    assert "Mechanisms at the last level, by predicted error" in out
    assert "the lifetime" not in out


def test_the_command_answers_for_a_plan(capsys, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN_YAML)
    status, out, err = run(capsys, path, "--users", 5000, "--candidates", 20)
    assert (status, err) == (0, "")
    assert "dest: string, rappor" in out
    assert "the lifetime's 640 pay for" in out
    status, out, _ = run(capsys, path, "--users", 5000, "--format=json")
    document = json.loads(out)
    names = [metric["name"] for metric in document["metrics"]]
    assert names == ["carrier", "dep_delay", "distance"]
    assert "candidates" in document["refused"]["dest"]
    assert len(document["metrics"][0]["levels"]) == 3
    assert document["budget"] == {
        "period": 9_500_000,
        "period_ceiling": 12_000_000,
        "lifetime": 640_000_000,
        "permanent": 0,
        "periods": 67,
        "period_length": WEEK,
        "recurring": 9_500_000,
    }
    assert run(capsys, path, "--ladder", 1) == (
        2,
        "",
        "sotto: error: a plan has its own types and ladders\n",
    )


def test_the_chart_is_an_svg_with_a_curve_a_level(capsys, tmp_path):
    path = tmp_path / "chart.svg"
    options = "--type boolean --ladder 0.5,1,2 --width 0.01 --users 30000 --plot"
    assert run(capsys, *options.split(), path)[0] == 0
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    texts = {"".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")}
    assert {"ε 0.5", "ε 1", "ε 2", "target: 0.01", "30,000 users", "users in a window"} <= texts
    assert any("width of the interval of 95 % (parts of one)" in text for text in texts)


def test_uniform_categories_are_equally_frequent(capsys):
    options = "--type category --domain 50 --ladder 2 --mechanism hadamard --uniform"
    status, out, _ = run(capsys, *options.split())
    assert status == 0
    assert "assumed: a true share of 2 %, the others alike" in " ".join(out.split())


# Panels traded against years and users.


def traded(question, panels, users=10**8, recurring=2_000_000, ceiling=10**9):
    found, rows = design(question, Goal("error"), users), []
    for panel in panels:
        costs = ((panel, recurring),) if recurring else ()
        rows.append(in_panel(found, panel, Lifetime(WEEK, ceiling, costs)))
    return rows


def test_the_errors_of_a_year_of_weeks_for_a_total_of_2():
    """A share of every week: 3.07 times sqrt(users)."""
    asked = question_of("boolean", [2_000_000], {}, mechanism="grr")
    (row,) = traded(asked, (52,))
    root = 10**4
    # Randomized response at epsilon has the noise 1 / (2 sinh(epsilon / 2)).
    assert row.error * root == pytest.approx(0.5 / sinh(1) * sqrt(52), rel=1e-4)
    assert row.error * root == pytest.approx(3.07, abs=0.005)
    # And with the chance of who has a turn, of a share of one half.
    assert row.of_all * root == pytest.approx(sqrt(3.068**2 + 0.25 * 51), abs=0.005)


@pytest.mark.parametrize("kind", ["category", "number", "string", "survey"])
def test_every_panel_has_its_part_of_reports_loss_and_error(kind):
    given = {"category": {"domain_size": 5}, "string": {}, "number": {}, "survey": {}}[kind]
    assumed = Assumed(candidates=("home", "work", "gym"))
    asked = question_of(kind, [500_000, 2_000_000], given, assumed=assumed)
    whole, *rows = traded(asked, (1, 4, 13, 26), 10**6, 6_000_000, 300_000_000)
    assert (whole.error, whole.reports) == (whole.of_all, 10**6)
    for row in rows:
        assert row.reports == 10**6 // row.panel
        assert row.error == pytest.approx(whole.error * sqrt(row.panel), rel=0.01)
        assert row.yearly == pytest.approx(whole.yearly / row.panel)
        assert row.turns == pytest.approx(365.25 / 7 / row.panel)
        assert row.years == pytest.approx(50 * row.panel * 7 / 365.25)
        assert row.error < row.of_all


def test_a_window_of_several_periods_and_a_constant_metric(tmp_path):
    text = PLAN_YAML.replace("period: 7d", "period: 7d\npanel: 1/2") + (
        "  model: {type: boolean, window: 28d, repeat: {constant: true}, "
        "ladder: [{epsilon: 0.5}, {epsilon: 1}]}\n"
    )
    plan = parse_plan(text).compile()
    # 28 days have 4 periods, 2 of which are a device's turn, with 2 values each.
    asked = question_of_metric(plan, plan.metric("distance"))
    assert (asked.panel, asked.per_user, asked.in_panel(1).per_user) == (2, 4, 8)
    assert asked.in_panel(13).per_user == pytest.approx(8 / 13)
    # A constant metric has one, or less if a window has less than a cycle.
    model = question_of_metric(plan, plan.metric("model"))
    assert [model.in_panel(panel).per_user for panel in (1, 2, 4, 8)] == [1, 1, 1, 0.5]
    (row,) = traded(model, (8,), recurring=0)
    assert (row.years, row.yearly) == (None, 0)


def test_the_command_trades_panels(capsys, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN_YAML)
    arguments = ["design", str(path), "--metric", "carrier", "--users", "10000"]
    assert sotto_cli.main([*arguments, "--panels", "1,4,13"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "every period 52.2 496 1.28 40,000" in out
    assert "1/13 4.01 38.1 16.7 3,076" in out
    assert sotto_cli.main([*arguments, "--panels", "1,4", "--format=json"]) == 0
    rows = json.loads(capsys.readouterr().out)["metrics"][0]["panels"]
    assert [row["panel"] for row in rows] == [1, 4]


def test_the_epsilon_that_would_do_is_none_where_the_largest_is_not_enough():
    asked = question_of("category", LADDER, {"domain_size": 12})
    assert design(asked, Goal("width", 1e-4), 10).enough is None


def test_users_are_enough_for_every_cohort_or_line_of_hashes(capsys):
    """A wide target takes few users, of whom nothing would be published."""
    given = {"bits": 128, "hashes": 2, "cohorts": 16}
    asked = question_of("string", LADDER, given, assumed=Assumed(candidates=("a", "b")))
    found = design(asked, Goal("width", 0.9))
    assert asked.published_from == found.users == found.levels[-1].needed == 542
    one = replace(asked, spec={**asked.spec, "cohorts": 1})
    assert design(one, Goal("width", 0.9)).users < 542
    arguments = ("--type", "string", "--candidates", 2, "--ladder", "0.5,1,2", "--users", 300)
    said = " ".join(run(capsys, *arguments)[1].split())
    assert "each of the 16 groups of rappor has 20 reports" in said
    assert "542 users. Too few: 300 users." in said
    assert "groups" not in run(capsys, *arguments, "--cohorts", 1)[1]


def test_the_smallest_segment_may_have_too_few_for_every_cohort(capsys, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN_YAML + "segments: {os: [linux, mac]}\n")
    said = " ".join(run(capsys, plan, "--users", 20, "--candidates", 9)[1].split())
    assert "Too few: 6 of os." in said


@pytest.mark.parametrize(
    ("epsilon", "retained", "days", "converted"),
    [(1, (0.4915, 0.1554, 0.0491), 0.274, 0.0503), (2, (0.1631, 0.0516, 0.0163), 0.108, 0.0199)],
)
def test_half_widths_of_retention_active_days_and_conversions(epsilon, retained, days, converted):
    """Half of the new devices, a tenth of all, come again; the days are those of the worst week.

    Six tenths begin the funnel, and half of them go on.
    """
    measured = f"type: ordinal, stored: true, window: 7d, ladder: [{{epsilon: {epsilon}}}]"
    plan = parse_plan(
        plan_head()
        + f"  age: {{{measured}, measure: {{age: 7d, up_to: 12}}}}\n"
        + f"  days: {{{measured}, range: [0, 7], points: 8, outside: clip, "
        + "measure: {days: app}}\n"
        + f"  checkout: {{{measured}, measure: {{furthest: [cart, address, card, paid]}}}}\n"
        + f"  exports: {{{measured}, edges: [0, 1, 2, 5], measure: {{count: export}}}}\n"
    ).compile()
    age, days_used, checkout, exports = (
        design(question_of_metric(plan, each, Assumed(share=share)), Goal("width", width))
        for each, share, width in zip(
            plan.metrics, (None, None, 0.6, None), (None, None, 2 * converted, None), strict=True
        )
    )
    assert (checkout.what, checkout.others) == ("a conversion of one half", ())
    assert checkout.data == "60 % of the devices reach the step before"
    assert checkout.users == pytest.approx(10**4, rel=5e-3)
    assert age.what == "a retention of one half"
    assert age.others == ()
    for users, half in zip((10**4, 10**5, 10**6), retained, strict=True):
        found = design(age.question, Goal("width", 2 * half), users)
        assert found.levels[0].width / 2 == pytest.approx(half, abs=5e-5)
        assert found.levels[0].needed == pytest.approx(users, rel=2e-3)
    assert (days_used.what, days_used.users) == ("the mean", 10**4)
    assert [each.spec["name"] for each in days_used.others] == ["brr", "grr"]
    # Bins are read by their shares, of which brr has no unbiased ones.
    assert exports.what.startswith("the share of")
    assert [each.spec["name"] for each in exports.others] == ["grr"]
    assert days_used.levels[0].width / 2 == pytest.approx(days, abs=5e-4)


def test_the_width_of_retention_is_that_of_its_results():
    """With panels who has a turn is chance as well, in the results and in the prediction."""
    mechanism = question_of("category", [4_000_000], {"domain_size": 13}, mechanism="grr").mechanism
    for panel in (1, 13):
        told = retention(mechanism, 0, 0.1, panel=panel)
        shares = (0.05, 0.1)
        errors = [
            precision(mechanism, 0, Assumed(share=each)).standard_error(10**4) for each in shares
        ]
        now, then = (
            Estimate(share, error, 10**4, (10**4,))
            for share, error in zip(shares, errors, strict=True)
        )
        assert told.standard_error(10**4) == pytest.approx(
            retention_estimate([now], [then], panel).standard_error
        )
