"""Segments and the experiment of a plan: how they are read, what is refused, and the cells."""

from __future__ import annotations

import pytest
from plan_texts import plan_head

from sotto.errors import ParameterError, PlanError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan, canonical
from sotto.plan.development import development_plan
from sotto.plan.segments import (
    Attribute,
    Experiment,
    PlannedDecision,
    cell_label,
    cell_of,
    given_segments,
)

PLAN = (
    plan_head("departures", (2, 104), collector="fleet.example")
    + """\
  late: {type: boolean, window: 28d, ladder: [{epsilon: 0.5}, {epsilon: 2, after: 7d}]}
"""
)
SEGMENTS = 'segments: {os: [linux, mac], app_version: ["1", "2"]}\n'
EXPERIMENT = "experiment: {name: onboarding, arms: [control, treatment], share: 0.2}\n"
DECIDED = EXPERIMENT.replace(
    "}", ", decision: {metric: late, start: 2026-01-05, end: 2026-06-21, looks: 3}}"
)
#: Metrics of which arms cannot be compared.
MORE = """\
  delay:
    {type: number, range: [0, 9], outside: clip, missing: true, mechanism: threshold, window: 28d,
     ladder: [{epsilon: 1}]}
  page: {type: string, window: 28d, ladder: [{epsilon: 1}]}
"""


def test_a_plan_without_them_has_the_bytes_that_it_had():
    plan = parse_plan(PLAN + "segments: {}\n").compile()
    assert plan == parse_plan(PLAN).compile()
    assert not any(name in plan.to_json() for name in (b"segments", b"experiment"))
    assert (plan.cells, plan.attributes) == (1, ())


def test_both_come_back_from_the_compiled_plan_and_are_in_the_fingerprint():
    plan = parse_plan(PLAN + SEGMENTS + EXPERIMENT).compile()
    assert CompiledPlan.from_json(plan.to_json()) == plan
    assert plan.attributes == (
        Attribute("os", ("linux", "mac", "other")),
        Attribute("app_version", ("1", "2", "other")),
        Attribute("onboarding", ("control", "treatment", "none")),
    )
    assert plan.experiment == Experiment("onboarding", ("control", "treatment"), 200_000)
    assert plan.cells == 27
    assert development_plan(plan).attributes == plan.attributes
    swapped = 'segments: {app_version: ["1", "2"], os: [linux, mac]}\n'
    others = [SEGMENTS, swapped + EXPERIMENT, SEGMENTS + EXPERIMENT.replace("0.2", "0.3"), ""]
    fingerprints = {parse_plan(PLAN + each).compile().fingerprint for each in others}
    assert len(fingerprints | {plan.fingerprint}) == 5


def test_cells_are_counted_in_mixed_radix_and_what_is_not_listed_is_the_last_value():
    attributes = parse_plan(PLAN + SEGMENTS + EXPERIMENT).compile().attributes
    cell = cell_of(attributes, {"os": "mac", "app_version": "1", "onboarding": "treatment"})
    assert cell == (1 * 3 + 0) * 3 + 1
    assert cell_label(attributes, cell) == "os=mac,app_version=1,onboarding=treatment"
    assert cell_of(attributes, {"os": "plan9", "app_version": None}) == 26
    assert cell_label(attributes, 26) == "os=other,app_version=other,onboarding=none"
    assert (cell_of((), {}), cell_label((), 0)) == (0, "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("segments: {a: [x], b: [x], c: [x]}", "3 are given; at most 2 are allowed"),
        (f"segments: {{a: {[*'abcdefgh']}, b: {[*'abcdefg']}}}", "72 cells (a 9 x b 8, with"),
        ("segments: {a: []}", "segments: a: at least 1 must be listed"),
        ("segments: {a: [x, x]}", "a value is given twice"),
        ("segments: {a: [other]}", "'other' is implied, do not list it"),
        ("segments: {a: ['x=1']}", "'x=1' must consist of"),
        ("segments: {'a,b': [x]}", "'a,b' must consist of"),
        ("segments: {a: [1]}", "1 is no text for YAML: write it in quotes"),
        ("segments: [a]", "must be a mapping"),
        ("experiment: {name: e, arms: [a], share: 0.5}", "at least 2 must be listed"),
        ("experiment: {name: e, arms: [a, none]}", "'none' is implied"),
        ("experiment: {name: e, arms: [a, b], share: 0}", "must be above 0 and at most 1"),
        ("experiment: {name: e, arms: [a, b], share: 1.5}", "must be above 0 and at most 1"),
        ("{a: [x]}\nexperiment: {name: a, arms: [a, b]}", "the name 'a' is given twice"),
    ],
)
def test_what_cannot_be_is_refused(more, message):
    more = f"segments: {more}" if more.startswith("{") else more
    with pytest.raises(PlanError) as refused:
        parse_plan(PLAN + more)
    assert message in str(refused.value)


def test_counts_of_all_cells_have_to_fit():
    text = PLAN.replace(
        "type: boolean", f"type: category, domain: {[f'v{n}' for n in range(1600)]}"
    )
    text = text.replace("window: 28d", "window: 1h").replace("28d,", "28d, outside: other,")
    text = text.replace("window: 1h,", "window: 1h, outside: other, mechanism: grr,")
    parse_plan(text)
    segments = f"segments: {{a: {[f'x{n}' for n in range(63)]}}}\n"
    with pytest.raises(PlanError, match="cells"):
        parse_plan(text + segments)


def test_arms_are_drawn_by_a_keyed_hash_of_public_names():
    """The arms of 4,096 secrets are within six standard errors of what they should be."""
    experiment = Experiment("onboarding", ("control", "treatment"), 200_000)
    secrets = [number.to_bytes(32, "big") for number in range(4096)]
    arms = [experiment.arm(secret, "fleet.example") for secret in secrets]
    for arm, share in (("control", 0.1), ("treatment", 0.1), (None, 0.8)):
        spread = (share * (1 - share) / 4096) ** 0.5
        assert abs(arms.count(arm) / 4096 - share) < 6 * spread
    # Those who take part stay where they are when the share grows.
    wider = Experiment("onboarding", ("control", "treatment"), 600_000)
    assert all(
        wider.arm(secret, "fleet.example") == arm
        for secret, arm in zip(secrets, arms, strict=True)
        if arm is not None
    )
    # Another collector or name has other arms, which are independent.
    same = sum(
        wider.arm(secret, "fleet.example") == wider.arm(secret, "other.example")
        for secret in secrets
    )
    assert abs(same / 4096 - (0.3**2 + 0.3**2 + 0.4**2)) < 6 * 0.5 / 64


def test_an_experiment_of_all_devices_has_no_value_for_those_outside():
    plan = parse_plan(PLAN + EXPERIMENT.replace("share: 0.2", "share: 1")).compile()
    assert plan.attributes == (Attribute("onboarding", ("control", "treatment")),)
    arms = {plan.experiment.arm(bytes([number]) * 32, "fleet.example") for number in range(64)}
    assert arms == {"control", "treatment"}


def test_a_planned_end_comes_back_and_is_not_on_the_wire():
    plain = parse_plan(PLAN + EXPERIMENT).compile()
    plan = parse_plan(PLAN + DECIDED).compile()
    day = 86_400_000
    assert plan.decision == PlannedDecision("late", 20_458 * day, 20_626 * day, 3)
    assert plan.decision.times == (20_514 * day, 20_570 * day, 20_626 * day)
    assert CompiledPlan.from_json(plan.to_json()) == plan
    assert plan.fingerprint == plain.fingerprint
    assert plan.digest != plain.digest
    assert b"decision" not in plain.to_json()
    assert development_plan(plan).decision == plan.decision


@pytest.mark.parametrize(
    ("what", "instead", "message"),
    [
        ("metric: late", "metric: lat", "there is no metric 'lat'; there are late, delay, page"),
        ("metric: late", "metric: delay", "by 'delay' (threshold): the mean of numbers"),
        ("metric: late", "metric: page", "by 'page' (rappor): several strings set the same bit"),
        ("end: 2026-06-21", "end: 2026-01-04", "start must be before end"),
        ("end: 2026-06-21", "end: 2999-06-21", "end not after expires"),
        ("looks: 3", "looks: 7", "looks 7 must be in [1, 6]: each has a window of 'late', 28d"),
        ("looks: 3", "looks: 0", "looks 0 must be in [1, 6]"),
        (", looks: 3", "", "looks is missing"),
        ("looks: 3", "look: 3", "unknown key 'look'; did you mean 'looks'?"),
        ("looks: 3", "looks: 3.5", "looks 3.5 must be"),
    ],
)
def test_a_planned_end_that_cannot_be_is_refused(what, instead, message):
    with pytest.raises(PlanError) as refused:
        parse_plan(PLAN + MORE + DECIDED.replace(what, instead))
    assert message in str(refused.value)


def test_a_planned_end_needs_an_experiment():
    document = parse_plan(PLAN + DECIDED).compile().document()
    del document["experiment"]
    with pytest.raises(PlanError, match="the plan has no experiment"):
        CompiledPlan.from_json(canonical(document))


def test_what_an_app_says_is_checked_and_never_repeated():
    segments = (("os", ("linux",)),)
    assert given_segments(segments, {"os": "what is not listed"}) == {"os": "what is not listed"}
    for wrong in ({"secret": "x"}, {"os": 7}, "os=linux", [("os", "linux")]):
        with pytest.raises(ParameterError) as refused:
            given_segments(segments, wrong)
        said = str(refused.value).replace("{'os': 'linux'}", "").replace("it has os", "")
        assert not any(part in said for part in ("secret", "linux", "os=", "7"))
