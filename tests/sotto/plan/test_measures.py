"""Measures in a plan: what they compile to, and that other plans stay as they were."""

from __future__ import annotations

import pytest
from plan_texts import plan_head

from sotto.design.description import description
from sotto.disclosure import facts
from sotto.errors import PlanError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.measures import KINDS, Measure, edge_labels

DAY = 86_400_000
REST = "stored: true, window: 7d, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]"
NUMBER = "type: number, range: [0, 100], outside: clip"
#: Its last level is the response that the device holds.
USED = "window: 7d, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}, {epsilon: 2.2}]"
#: A metric of each measure, and what is said of it.
METRICS = {
    "count": ("type: ordinal, edges: [0, 1, 2, 5], measure: {count: export}", "how often export"),
    "days": ("type: ordinal, range: [0, 7], points: 8, measure: {days: app}", "the app was used"),
    "furthest": ("type: ordinal, measure: {furthest: [cart, paid]}", "the furthest step"),
    "age": ("type: ordinal, measure: {age: 14d, up_to: 3}", "how many times 14d have passed"),
    "used": ("type: boolean, measure: {used: export}", "whether export was used"),
    "max": (f"{NUMBER}, missing: true, measure: {{max: load}}", "the largest load"),
    "min": (f"{NUMBER}, missing: true, measure: {{min: load}}", "the smallest load"),
    "sum": (f"{NUMBER}, measure: {{sum: load}}", "the sum of load"),
    "last": ("type: boolean, missing: true, measure: {last: dark}", "the last dark"),
}


def plan(*metrics, head=None):
    lines = "".join(f"  m{number}: {{{each}}}\n" for number, each in enumerate(metrics))
    return parse_plan((head or plan_head()) + lines).compile()


def test_there_is_one_of_each():
    assert tuple(METRICS) == KINDS


@pytest.mark.parametrize(("kind", "said"), [(kind, said) for kind, (_, said) in METRICS.items()])
def test_a_measure_is_compiled_read_and_said(kind, said):
    rest = USED if kind == "used" else REST
    compiled = plan(f"{METRICS[kind][0]}, {rest}")
    (metric,) = CompiledPlan.from_json(compiled.to_json()).metrics
    assert metric.measure.kind == kind
    assert metric.stored == (kind != "used")
    assert (metric.sent, metric.delays) == (2, (0, DAY))
    assert said in metric.measure.in_words()
    # A report says something else, so that the fingerprint is another.
    bare = plan(
        METRICS[kind][0].split(", measure:")[0] + f", {REST.removeprefix('stored: true, ')}"
        if kind not in ("furthest", "age")
        else f"type: boolean, {REST[14:]}"
    )
    assert compiled.fingerprint != bare.fingerprint


def test_other_metrics_have_none_of_it():
    document = plan("type: boolean, window: 7d, ladder: [{epsilon: 1}]").document()
    assert not {"measure", "stored", "edges"} & document["metrics"][0].keys()


def test_steps_and_ages_are_the_values():
    steps, ages = plan(f"{METRICS['furthest'][0]}, {REST}", f"{METRICS['age'][0]}, {REST}").metrics
    assert steps.labels == ("none", "cart", "paid")
    assert steps.encode("no such step") == 0
    assert ages.labels == ("0", "1", "2", "3 or more")
    assert [ages.encode(age) for age in (0, 2, 3, 99)] == [0, 2, 3, 3]
    assert {steps.spec["name"], ages.spec["name"]} == {"grr"}


def test_numbers_fall_into_the_bins_between_edges():
    compiled = plan(
        "type: ordinal, edges: [1, 2, 5], unit: min, window: 7d, ladder: [{epsilon: 1}]",
        "type: ordinal, edges: [-3, 0], missing: true, window: 7d, ladder: [{epsilon: 1}]",
    )
    plain, missing = compiled.metrics
    assert plain.labels == edge_labels([1, 2, 5]) == ("1", "2 to 4", "5 or more")
    values = (float("-inf"), 0, 1, 1.99, 2, 4.99, 5, 10**400, float("nan"))
    assert [plain.encode(value) for value in values] == [0, 0, 0, 0, 1, 1, 2, 2, 0]
    assert [missing.encode(value) for value in (None, float("nan"), -9, 0)] == [2, 2, 0, 1]
    assert [plain.within(value) for value in (0, 1, 9)] == [False, True, True]


def test_a_theft_is_said_with_its_exact_loss():
    compiled = plan(f"{METRICS['used'][0]}, window: 7d, ladder: [{{epsilon: 2}}, {{epsilon: 2.2}}]")
    said = " ".join("\n".join(description(compiled, {})).split())
    assert "at most epsilon 2.2, with all reports 5.790336; two thefts may show" in said
    [kept] = [text for text in facts.kept(compiled) if "export" in text]
    assert "at most 91 % sure of one, and with what is sent later at most 99.7 %" in kept


def test_a_device_refuses_what_no_compiler_writes():
    compiled = plan(f"{METRICS['count'][0]}, {REST}")
    for before, after, problem in (
        (b'"kind":"count"', b'"kind":"uses"', "measure 'uses' must be one of"),
        (b'"2 to 4"', b'"2 to 5"', "must name the bins"),
        (b'"stored":true,', b"", "say so with stored: true"),
    ):
        changed = compiled.to_json().replace(before, after)
        with pytest.raises(PlanError, match=problem):
            CompiledPlan.from_json(changed)


def test_days_of_the_app_feed_themselves():
    assert Measure("days", "app").method == ""
    assert Measure("days", "export").method == "count"
