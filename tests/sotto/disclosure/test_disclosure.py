"""Texts for people, lawyers and stores: every figure follows from the plan."""

import csv
import io
import plistlib
import re
from fractions import Fraction
from math import comb, exp

import pytest
from plan_texts import plan_head

from mechanisms.exact import MICRO
from sotto.disclosure import facts, forms, texts
from sotto.plan.checks import DATA_TYPES
from sotto.plan.compile import parse_plan
from sotto_cli import main

PLAN = """\
collector: editor.example
plan: comfort
version: 1
owner: telemetry@editor.example
expires: 2036-12-31
period: 7d
panel: 1/13
ceilings: {period: 20, lifetime: 300}
resolution: 1h
description: How the editor starts and looks
purpose: >
  We decide which themes to keep | and
  whether starting is fast.
groups: {look: How it looks, speed: How fast it is}
metrics:
  theme:
    {type: category, domain: [light, dark], outside: other, window: 28d, group: look,
     description: "Which theme is used: \\"light\\" | dark", data_type: interaction,
     ladder: &ladder [{epsilon: 0.5}, {epsilon: 2, after: 7d}]}
  startup:
    {type: number, range: [0, 5000], unit: ms, outside: clip, missing: true, window: 7d,
     purpose: To find slow starts, group: speed, data_type: performance, ladder: *ladder}
  hang:
    {type: boolean, window: 7d, group: speed, data_type: performance, repeat: {every: 2},
     ladder: *ladder}
  model:
    {type: boolean, window: 28d, group: look, repeat: {constant: true},
     ladder: [{epsilon: 1}, {epsilon: 4}]}
  screen:
    {type: top_item, domain: [map, list, help], outside: other, clip: 20, window: 28d, group: look,
     ladder: *ladder}
"""


@pytest.fixture(scope="module")
def plan():
    return parse_plan(PLAN).compile()


def flat(text):
    return " ".join(text.split())


def test_how_sure_one_can_become_is_never_understated():
    for micro in (1, 1000, 500_000, 2_000_000, 4_000_000, 6_000_000, 9_000_000, 40_000_000):
        text = facts.sure(micro)
        stated = Fraction(text.removesuffix(" %")) / 100
        odds = Fraction(exp(micro / MICRO)).limit_denominator(10**12)
        assert odds / (1 + odds) <= stated <= 1
        assert stated < 1 or odds / (1 + odds) > Fraction(9999, 10000)
        assert stated - odds / (1 + odds) <= Fraction(1, 100)


def test_the_bounds_are_those_of_the_dearest_and_the_cheapest_value_and_of_a_period(plan):
    value, period, constant, life = facts.bounds(plan)
    # theme, startup, hang and screen cost 2 a value, and the permanent response of model 4.
    assert f"at most {facts.sure(2 * MICRO)} to {facts.sure(4 * MICRO)}, by question" in value
    # All periods of model, which are about the same value, cost 4 instead of the 1 of each.
    assert plan.cost == 11 * MICRO
    assert f"{facts.sure(14 * MICRO)} sure which of two descriptions" in period
    assert "epsilon 14.0" in period
    assert "does not change (model) of all times together (epsilon 4.0)" in constant
    assert "at most epsilon 300.0" in life


LADDER = "window: 28d, ladder: [{epsilon: 0.5}, {epsilon: 2, after: 7d}]"


def alone(metric, **more):
    """A plan of one metric."""
    of_editor = {"collector": "editor.example", "expires": "2036-12-31"}
    return parse_plan(plan_head("comfort", (20, 300), **of_editor, **more) + metric).compile()


@pytest.mark.parametrize(
    ("metric", "symbols"),
    [
        ("type: category, domain: [a, b, c], outside: other", range(4)),
        ("type: boolean, missing: true", range(3)),
        ("type: ordinal, values: [bad, ok, good]", range(3)),
        ("type: survey, question: Really", range(2)),
        ("type: boolean, repeat: {every: 3}", range(2)),
    ],
)
def test_the_stated_bound_of_a_value_is_that_of_the_best_guesser(metric, symbols):
    plan = alone(f"  m: {{{metric}, {LADDER}}}\n")
    (one,) = plan.metrics
    best = best_guess([one.mechanism.law(each, one.sent - 1) for each in symbols])
    assert best <= stated(next(facts.bounds(plan))) <= best + Fraction(2, 100)


CONSTANT = (
    "  m: {type: boolean, window: 28d, repeat: {constant: true}, ladder: [{epsilon: 2}, %s]}\n"
)
PERIODS = 41


def test_the_stated_bounds_of_a_constant_metric_hold_through_all_its_periods():
    constant = alone(CONSTANT % "{epsilon: 8}")
    (metric,) = constant.metrics
    mechanism = metric.mechanism
    first = [mechanism.law(each, 1) for each in range(2)]
    # How many of the periods show 1 is all that a guesser can use.
    seen = []
    for law in first:
        found = dict.fromkeys(range(PERIODS + 1), Fraction(0))
        for response, weight in law.items():
            one = mechanism.chain.step(response, 0)[1]
            for ones in found:
                found[ones] += (
                    weight * comb(PERIODS, ones) * one**ones * (1 - one) ** (PERIODS - ones)
                )
        seen.append(found)
    value, period, *_ = facts.bounds(constant)
    best = best_guess(seen)
    # One period alone gives 88.1 %: that is what the reports of all of them are not bounded by.
    assert Fraction(9996, 10000) < best
    assert best <= stated(value) == stated(period) == Fraction(9997, 10000)


def stated(sentence):
    """Return the highest share that a sentence says is at most reached."""
    return (
        max(Fraction(each) for each in re.findall(r"([\d.]+) %", sentence.split("sure")[0])) / 100
    )


def best_guess(laws):
    """Return how sure of one of two inputs an output can make whoever held both equally likely."""
    return max(
        one[output] / (one[output] + other.get(output, 0))
        for one in laws
        for other in laws
        if one is not other
        for output in one
        if one[output]
    )


@pytest.mark.parametrize("name", ["consent", "policy", "dpia", "apple", "google"])
def test_every_form_names_segments_and_experiment(name):
    plan = alone(
        f"  dark: {{type: boolean, {LADDER}}}\n",
        segments="{os: [linux, mac], a--b: ['1']}",
        experiment="{name: onboarding, arms: [control, treatment], share: 0.2}",
    )
    form = {
        "consent": texts.consent_text,
        "policy": texts.policy_text,
        "dpia": forms.assessment,
        "google": forms.google_answers,
        "apple": lambda plan: forms.apple_manifest(plan).decode(),
    }[name](plan)
    told = flat(form).replace("- -", "--")
    for each in ("linux, mac or other", "a--b", "control, treatment or none"):
        assert each in told
    assert "as it is" in told
    if name == "apple":
        assert plistlib.loads(form.encode())["NSPrivacyTracking"] is False
        assert "OtherDataTypes: dark; os, sent as it is" in told
        assert "os, a--b, onboarding" in forms.gaps(plan, name)[1]


@pytest.mark.parametrize(
    "form", [texts.consent_text, texts.policy_text, forms.google_answers, forms.assessment]
)
def test_forms_say_how_sent_reports_are_found_and_removed(plan, form):
    told = flat(form(plan))
    assert "can find your reports by that name" in told
    assert "hand the name to telemetry@editor.example" in told
    for denied in ("cannot be found", "cannot be called back", "does not keep which"):
        assert denied not in told


def test_what_is_kept_is_said_of_what_is_kept(plan):
    told = " ".join(facts.kept(plan))
    assert "Counts of items are kept in memory" in told
    assert "What could not be sent within 15 days" in told
    assert "(model) is kept on this device until you withdraw" in told
    bare = parse_plan(PLAN[: PLAN.index("  hang")].replace("look, speed", "look")).compile()
    told = " ".join(facts.kept(bare))
    assert "Counts" not in told
    assert "until you withdraw" not in told


def test_the_consent_text_names_each_metric_in_its_group_once(plan):
    text = texts.consent_text(plan)
    assert max(map(len, text.splitlines())) <= 88
    look, speed = (text.index(f"(group {name})") for name in ("look", "speed"))
    place = {each.name: text.index(flat(facts.title(each))[:20]) for each in plan.metrics}
    assert all(look < place[name] < speed for name in ("theme", "model", "screen"))
    assert all(speed < place[name] for name in ("startup", "hang"))
    told = flat(text)
    assert "one of light, dark; any other counts as other" in told
    assert "a number from 0 to 5000 ms; or that there is none" in told
    assert "the first 2 values in 7 days, in one such period of 13" in told
    assert "Nothing is recorded after 2036-12-31" in told
    assert "telemetry@editor.example" in told


def test_without_groups_texts_or_panels_there_is_less_to_say():
    bare = alone(f"  dark: {{type: boolean, {LADDER}}}")
    text = texts.consent_text(bare)
    assert text.startswith("If you agree, this app sends")
    assert "group" not in text
    assert "* dark. It is true or false; reported: the first value in 7 days.\n" in text
    assert forms.gaps(bare, "consent") == [
        "no description, so shown by name: dark",
        "no purpose, neither in the plan nor of: dark",
    ]
    assert "dark" in forms.gaps(bare, "apple")[0]


def test_a_value_cannot_hide_the_rest_of_the_consent_text():
    metric = '{type: category, domain: [a, "\\e[8m", "\\n\\u202e"], outside: other'
    hiding = alone(f"  dark: {metric}, {LADDER}}}")
    text = texts.consent_text(hiding)
    assert "one of a, \\x1b[8m, \\n\\u202e; any" in flat(text)
    assert all(each.isprintable() for each in text.splitlines())


def test_nothing_says_what_only_a_lawyer_can(plan):
    told = " ".join(
        [texts.consent_text(plan), texts.policy_text(plan), forms.google_answers(plan)]
    ).lower()
    for claim in ("anonym", "personal data", "gdpr", "complian", "legal", "impossible", "guarant"):
        assert claim not in told
    assert "whether the randomized answers are personal data" in forms.assessment(plan)


def test_the_assessment_has_a_row_a_metric_and_every_certified_epsilon(plan):
    lines = forms.assessment(plan).splitlines()
    head = lines[2]
    rows = {line.split(" | ")[0].strip("| "): line for line in lines[4 : 4 + len(plan.metrics)]}
    assert rows.keys() == {metric.name for metric in plan.metrics}
    # A bar within a text ends no cell.
    assert all(line.replace("\\|", "").count("|") == head.count("|") for line in rows.values())
    assert "0.5 after 0 milliseconds" not in rows["theme"]
    assert "0.5 at once; 2.0 after 7 days" in rows["theme"]
    assert "| 4.0 |" in rows["model"]


def test_the_manifest_is_a_property_list_with_each_kind_once(plan):
    manifest = plistlib.loads(forms.apple_manifest(plan))
    assert manifest["NSPrivacyTracking"] is False
    kinds = manifest["NSPrivacyCollectedDataTypes"]
    assert [each["NSPrivacyCollectedDataType"] for each in kinds] == [
        "NSPrivacyCollectedDataTypeOtherDataTypes",
        "NSPrivacyCollectedDataTypePerformanceData",
        "NSPrivacyCollectedDataTypeProductInteraction",
    ]
    for each in kinds:
        assert each["NSPrivacyCollectedDataTypeLinked"] is False
        assert each["NSPrivacyCollectedDataTypeTracking"] is False
        assert each["NSPrivacyCollectedDataTypePurposes"] == [
            "NSPrivacyCollectedDataTypePurposeAnalytics"
        ]


def test_every_kind_of_data_has_a_name_in_both_stores():
    assert tuple(forms.KINDS) == DATA_TYPES


def test_the_answers_for_google_are_a_table_of_three_columns(plan):
    head, *rows = csv.reader(io.StringIO(forms.google_answers(plan)))
    assert head == ["question", "answer", "why"]
    assert {len(row) for row in rows} == {3}
    answers = {row[0]: row for row in rows}
    # Questions that the plan does not decide are left to the owner.
    encrypted = "Is all of the user data collected by your app encrypted in transit?"
    assert answers[encrypted][1] == "for the owner to answer"
    diagnostics = "App info and performance: Diagnostics: why is this user data collected?"
    assert answers[diagnostics][1:] == [
        "Analytics",
        "To find slow starts. We decide which themes to keep | and whether starting is fast.",
    ]


@pytest.mark.parametrize("name", ["consent", "policy", "dpia", "apple", "google"])
def test_the_command_writes_each_format_of_a_plan_compiled_or_not(tmp_path, capfdbinary, name):
    (tmp_path / "plan.yaml").write_text(PLAN, "utf-8")
    assert main(["plan", "compile", str(tmp_path / "plan.yaml")]) == 0
    capfdbinary.readouterr()
    written = []
    for file in ("plan.yaml", "plan.json"):
        assert main(["plan", "disclose", str(tmp_path / file), "--format", name]) == 0
        written.append(capfdbinary.readouterr())
    assert written[0] == written[1]
    out = tmp_path / "out"
    assert main(["plan", "disclose", str(tmp_path / file), "--format", name, "-o", str(out)]) == 0
    assert out.read_bytes() == written[0].out != b""
    assert b"sotto: warning: no d" in written[0].err
