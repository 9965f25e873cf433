"""Metrics of every type: what a plan says of them, what their values become, what is refused."""

import json
import math
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml
from agreed_plans import DAY, canonical
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_texts import plan_head

from pipelines.aggregation.result_rows import estimate
from sotto.errors import PlanError, ValueTypeError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

PLAN = plan_head("types", (40, 640), expires="2027-06-30")
LADDER = "window: 28d, ladder: [{epsilon: 0.5}, {epsilon: 2, after: 7d}]"


HERE = Path(__file__).parent
REFUSED = yaml.safe_load((HERE / "refused_metrics.yaml").read_text("utf-8"))
LIES = yaml.safe_load((HERE / "metric_lies.yaml").read_text("utf-8"))


def plan(*metrics):
    return parse_plan(PLAN + "".join(f"  {metric}\n" for metric in metrics)).compile()


def metric(fields, ladder=LADDER):
    [only] = plan(f"m: {{{fields}, {ladder}}}").metrics
    return only


def refusal(fields, ladder=LADDER):
    with pytest.raises(PlanError) as caught:
        metric(fields, ladder)
    return str(caught.value)


@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: wrong["says"])
def test_what_no_metric_may_be_is_refused(wrong):
    assert wrong["says"] in refusal(wrong["metric"], wrong.get("ladder", LADDER))


class TestOrdinal:
    GRADES = "type: ordinal, values: [awful, bad, ok, good, great]"

    def test_values_in_order(self):
        grade = metric(self.GRADES)
        assert grade.labels == grade.domain == ("awful", "bad", "ok", "good", "great")
        assert grade.outside == "ok"
        assert [grade.encode(value) for value in ("awful", "great", "meh", "")] == [0, 4, 2, 2]
        assert grade.spec == {"name": "brr", "domain_size": 5, "missing": False, "subset_size": 1}
        chosen = metric(f"{self.GRADES}, outside: bad")
        assert chosen.encode("meh") == 1

    def test_a_missing_value_is_the_last_symbol_and_out_of_order(self):
        grade = metric(f"{self.GRADES}, missing: true")
        assert grade.labels[-1] == "missing"
        assert [grade.encode(value) for value in (None, "meh", "missing", "ok")] == [5, 5, 5, 2]

    def test_points_of_a_range(self):
        latency = metric("type: ordinal, range: [0, 1000], points: 21, unit: ms, outside: clip")
        assert latency.labels[:2] == ("0", "50")
        assert len(latency.labels) == 21
        assert latency.unit == "ms"
        values = (-5, 0, 25, 25.1, 74, 1000, math.inf, math.nan, np.float32(500))
        assert [latency.encode(value) for value in values] == [0, 0, 0, 1, 1, 20, 20, 0, 10]

    @given(st.floats() | st.integers() | st.fractions())
    def test_every_number_has_a_point(self, value):
        latency = metric("type: ordinal, range: [-1, 1], points: 5, missing: true, outside: clip")
        assert latency.encode(value) in range(6 if value != value else 5)

    def test_wrong_types(self):
        latency = metric("type: ordinal, range: [0, 1000], points: 21")
        for each, value in ((metric(self.GRADES), 3), (latency, "secret"), (latency, True)):
            with pytest.raises(ValueTypeError, match=r"metric 'm' expects .*; got") as caught:
                each.encode(value)
            assert "secret" not in str(caught.value)


@pytest.mark.parametrize("limits", ["[-1.0e+100, 1.0e+100]", "[0, 1.0e-100]"])
@pytest.mark.parametrize("kind", ["ordinal, points: 3", "vector, dimensions: 2, outside: clip"])
def test_the_widest_and_narrowest_ranges_have_finite_estimates(kind, limits):
    found = metric(f"type: {kind}, range: {limits}")
    counts = np.ones((found.mechanism.levels, found.mechanism.count_length), dtype=np.int64)
    with np.errstate(all="raise"):
        items = list(estimate(found, 40 * counts, ()))
    means = [each.estimate for each in items if each.kind == "mean"]
    assert means
    for mean in means:
        assert math.isfinite(mean.value)
        assert math.isfinite(mean.standard_error)


@pytest.mark.parametrize("name", ["local_hashing", "subset", "hadamard"])
@pytest.mark.parametrize("size", ["x", "true", "0", "1", "4", "2000000", "[2, 1]"])
def test_a_wrong_number_of_symbols_that_is_written_is_refused_by_name(name, size):
    said = refusal(f"type: boolean, mechanism: {{{name}: {{domain_size: {size}}}}}")
    assert f"metric 'm': mechanism {name}: domain_size" in said


class TestSurvey:
    SURVEY = 'type: survey, question: "Did you?"'

    def test_yes_and_no(self):
        cheated = metric(self.SURVEY)
        assert cheated.question == "Did you?"
        assert cheated.labels == ("no", "yes")
        assert [cheated.encode(value) for value in (False, True)] == [0, 1]
        for value in (0, "yes", None):
            with pytest.raises(ValueTypeError):
                cheated.encode(value)

    def test_designs_have_parameters(self):
        assert metric(self.SURVEY).spec == {"name": "warner"}
        simmons = metric(f"{self.SURVEY}, mechanism: {{simmons: {{unrelated: 30}}}}")
        assert simmons.spec == {"name": "simmons", "unrelated": 30}
        cards = metric(f"{self.SURVEY}, mechanism: {{christofides: {{cards: [2, 1, 6]}}}}")
        assert cards.spec == {"name": "christofides", "cards": (2, 1, 6)}
        assert cards.mechanism.certified(1) == 1_098_613
        # Cards that are not written reach the last level.
        assert metric(f"{self.SURVEY}, mechanism: christofides").cost in range(1_999_000, 2_000_001)


class TestVector:
    VECTOR = "type: vector, range: [-1, 1], dimensions: 3, outside: clip"

    def test_coordinates_are_clipped_and_scaled(self):
        vector = metric(f"{self.VECTOR}, mechanism: {{sampled: 2, bits: 8}}")
        assert vector.spec == {"name": "sampled_vector", "dimensions": 3, "sampled": 2, "bits": 8}
        assert vector.encode([-5, 0, 0.5]) == (0.0, 0.5, 0.75)
        assert vector.encode(np.array([math.inf, math.nan, 1], dtype=np.float32)) == (1, 0, 1)

    def test_the_number_of_coordinates_is_chosen(self):
        weak = metric(self.VECTOR, LADDER.replace("epsilon: 2,", "epsilon: 1.5,"))
        assert weak.spec == {"name": "sampled_vector", "dimensions": 3, "sampled": 1, "bits": 0}
        strong = metric(self.VECTOR, LADDER.replace("epsilon: 2,", "epsilon: 8,"))
        assert strong.spec["name"] == "sampled_hybrid"
        assert strong.spec["sampled"] in (2, 3)

    @pytest.mark.parametrize(
        "value",
        [
            *("123", b"123", None, 5, np.float64(1), {1: 2}, {1, 2, 3}),
            *([1, 2], [1, 2, 3, 4], [1, 2, "secret"], [1, 2, True], np.ones((3, 1))),
        ],
        ids=range(12),
    )
    def test_wrong_types(self, value):
        vector = metric(self.VECTOR)
        with pytest.raises(ValueTypeError, match="expects a sequence of 3 numbers") as caught:
            vector.encode(value)
        assert "secret" not in str(caught.value)

    def test_a_wrong_length_is_said_without_the_numbers(self):
        with pytest.raises(ValueTypeError, match=r"got 2$"):
            metric(self.VECTOR).encode([0.8125, 0.125])


class TestConstant:
    CONSTANT = "type: boolean, repeat: {constant: true}"
    THREE = "window: 28d, ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 4}]"

    def test_the_last_level_is_the_permanent_response(self):
        fixed = metric(self.CONSTANT, self.THREE)
        assert (fixed.kind, fixed.limit, fixed.sent) == ("constant", 1, 2)
        assert fixed.delays == (0, DAY)
        assert fixed.ladder[-1].after == DAY
        assert (fixed.cost, fixed.permanent) == (1_000_000, 4_000_000)
        # Last delay that is sent, one period, grace.
        assert fixed.horizon == DAY + 7 * DAY + DAY

    def test_it_costs_a_lifetime_once_and_every_period_what_is_sent(self):
        both = plan(f"m: {{{self.CONSTANT}, {self.THREE}}}", f"n: {{type: boolean, {LADDER}}}")
        assert (both.cost, both.permanent, both.recurring) == (3_000_000, 4_000_000, 2_000_000)
        assert CompiledPlan.from_json(both.to_json()) == both

    def test_other_metrics_have_no_permanent_response(self):
        plain = metric("type: boolean")
        assert (plain.sent, plain.permanent, plain.cost) == (2, 0, 2_000_000)

    def test_a_lifetime_that_cannot_bear_it_is_refused(self):
        text = PLAN.replace("{period: 40, lifetime: 640}", "{period: 2, lifetime: 4}")
        text += f"  m: {{{self.CONSTANT}, {self.THREE}}}\n"
        assert parse_plan(text).compile().permanent == 4_000_000
        with pytest.raises(PlanError, match=r"lifetime 4\.0 is less than the 6\.0 that the perm"):
            parse_plan(text + f"  n: {{type: boolean, {LADDER}}}\n").compile()


EVERY = PLAN + "".join(
    f"  m{number}: {{{fields}, {LADDER}}}\n"
    for number, fields in enumerate(
        [
            "type: ordinal, values: [a, b, c], mechanism: {brr: {subset_size: 1}}",
            "type: ordinal, range: [0, 1], points: 5, missing: true",
            "type: survey, question: q, mechanism: {christofides: {cards: [2, 1, 6]}}",
            "type: survey, question: q, mechanism: {simmons: {unrelated: 40}}",
            "type: vector, range: [0, 1], dimensions: 4, outside: clip, mechanism: {sampled: 2}",
            "type: top_item, domain: [a, b], outside: other, clip: 3",
            "type: number, range: [0, 1], outside: clip, mechanism: {hybrid: {points: 17}}",
            "type: category, domain: [a, b, c], outside: a, mechanism: {subset: {subset_size: 1}}",
            "type: category, domain: [a, b, c], outside: a, mechanism: hadamard",
            "type: string, cohorts: 4",
            "type: number, range: [-30, 180], unit: min, outside: clip, repeat: {every: 2}",
            "type: boolean, panel: 1/4",
        ]
    )
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_plan_with_anything_in_it_is_loaded_or_refused_in_words(data):
    at = data.draw(st.integers(len(PLAN), len(EVERY)))
    end = data.draw(st.integers(at, min(len(EVERY), at + 12)))
    written = data.draw(
        st.sampled_from(["0", "-1", ".nan", "[]", "{}", "~", "true", "1e999", "[1, 2]", "\n"])
        | st.text(max_size=6)
    )
    with suppress(PlanError):
        plan = parse_plan(EVERY[:at] + written + EVERY[end:]).compile()
        assert CompiledPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie["says"])
def test_a_metric_that_lies_in_a_compiled_plan_is_refused(lie):
    document = json.loads(parse_plan(EVERY).compile().to_json())
    metric = document["metrics"][lie["metric"]] | lie["changes"]
    document["metrics"][lie["metric"]] = {k: each for k, each in metric.items() if each is not None}
    with pytest.raises(PlanError) as caught:
        CompiledPlan.from_json(canonical(document))
    assert lie["says"] in str(caught.value)


VALUES = {
    str: ["", "a", "\ud800", "x" * 10_000, "\0"],
    bool: [True, False],
    int: [0, -1, 10**400, -(10**400)],
    float: [0.0, math.nan, math.inf, -math.inf, 5e-324],
    bytes: [b"a"],
    list: [[1.0]],
}
PLAIN = {
    "type: category, domain: [a, b], outside: other": {str},
    "type: boolean": {bool},
    "type: string, bits: 64, hashes: 2, cohorts: 4": {str},
    "type: number, range: [0, 10], outside: clip": {int, float},
    "type: ordinal, values: [bad, good]": {str},
    "type: ordinal, range: [0, 10], points: 11, outside: clip": {int, float},
    "type: vector, dimensions: 4, range: [0, 1], outside: clip": set(),
}


@pytest.mark.parametrize("fields", PLAIN)
def test_every_value_of_a_plain_type_is_taken_and_no_other_type(fields):
    of = metric(fields)
    assert of.plain == PLAIN[fields]
    for kind, values in VALUES.items():
        for value in values:
            if kind in of.plain:
                of.encode(value)
            elif of.plain:
                with pytest.raises(ValueTypeError):
                    of.encode(value)


CATEGORY = "type: category, domain: [a, b, c], outside"
NUMBER = "type: number, range: [-1, 2], outside: clip"
WITHIN = [
    (f"{CATEGORY}: other", ["a", "other"], ["d", ""]),
    (f"{CATEGORY}: a", ["a", "b"], ["other"]),
    ("type: boolean", [True, False], []),
    (NUMBER, [-1, 2.0, 0], [-1.01, 3, math.inf, math.nan]),
    (f"{NUMBER}, missing: true", [None, math.nan, 1], [5]),
    (
        "type: vector, range: [0, 1], dimensions: 2, outside: clip",
        [(0, 1), [0.5, 0.5]],
        [(0, 1.5), (math.nan, 0)],
    ),
]


@pytest.mark.parametrize(("fields", "inside", "outside"), WITHIN)
def test_which_values_a_plan_names(fields, inside, outside):
    found = metric(fields)
    assert all(found.within(value) for value in inside)
    assert not any(found.within(value) for value in outside)
    with pytest.raises(ValueTypeError):
        found.within(object())


WORDS = """\
description: How flights
  depart
purpose: We look for delays
groups: {times: When flights leave, planes: What flies}
metrics:
"""


def worded(changes=None, **words):
    said = {"group": "times", "description": "A metric", "purpose": "To know", **words}
    text = ", ".join(f"{key}: {json.dumps(value)}" for key, value in said.items() if value)
    first = f"  m: {{type: boolean, {text}, {LADDER}}}\n"
    head = PLAN.replace("metrics:\n", WORDS if changes is None else changes)
    return parse_plan(f"{head}{first}  n: {{type: boolean, group: planes, {LADDER}}}\n").compile()


def test_texts_for_people_are_carried_on_one_line():
    found = worded(purpose="To\n know\n", data_type="usage")
    assert found.description == "How flights depart"
    assert found.groups == (("planes", "What flies"), ("times", "When flights leave"))
    told = found.metrics[0]
    assert (told.description, told.purpose) == ("A metric", "To know")
    assert (told.data_type, told.group) == ("usage", "times")
    assert CompiledPlan.from_json(found.to_json()) == found
    # Metrics that count alike are one, whatever is said of them.
    other = worded(
        description="Another text",
        purpose=None,
        group="planes",
        changes=WORDS.replace("{times: When flights leave, ", "{"),
    )
    assert other.metrics[0].counted == told.counted
    assert other.metrics[0] != told


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("description must be a text on one line, of 1 to 1024", {"description": "a" * 1025}),
        ("purpose must be a text on one line", {"purpose": "\x1b[31m"}),
        ("purpose must be a text on one line", {"purpose": "to \u202eevas\u202c"}),
        ("data_type 'secrets' must be one of performance, crash", {"data_type": "secrets"}),
        ("group 'other' must be one of the plan's groups, planes, times", {"group": "other"}),
        ("metric 'm': group None must be one of the plan's groups", {"group": None}),
    ],
)
def test_texts_that_cannot_be_shown_are_refused(said, words):
    with pytest.raises(PlanError, match=re.escape(said)):
        worded(**words)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("group 'times' must be one of the plan's groups, of which there are none", "metrics:\n"),
        ("group 'more' has no metric", WORDS.replace("{times", "{more: More, times")),
        ("group 'a b' must be a name", WORDS.replace("{times", "{'a b': More, times")),
        ("group 'times': its text must be on one line", WORDS.replace("When flights leave", "''")),
    ],
)
def test_groups_that_do_not_fit_are_refused(said, changes):
    with pytest.raises(PlanError, match=re.escape(said)):
        worded(changes)
