"""Users that an experiment takes: the known numbers, and whether they do what is said."""

from __future__ import annotations

import json
import math

import pytest
from agreed_plans import PLAN_YAML

import sotto_cli
from sotto.design.experiment import Effect, arm_users
from sotto.design.questions import question_of, question_of_metric
from sotto.errors import ParameterError
from sotto.plan.compile import parse_plan

pytestmark = pytest.mark.slow

BINARY = question_of("boolean", [1_000_000, 2_000_000], {}, mechanism="grr")


def test_users_to_tell_11_from_10_percent():
    raw, one, two = arm_users(BINARY, Effect(0.10, 0.11))
    assert (raw.level, raw.certified, raw.once) == (None, None, 14_128)
    assert (one.level, one.certified, one.once) == (1, 1_000_000, 158_654)
    assert (two.level, two.certified) == (2, 2_000_000)
    assert (two.once, two.planned, two.always) == (42_544, 43_595, 110_726)
    # With z to four decimals, 1.96 and 0.8416, it is 158,655.
    noise = math.exp(1) / math.expm1(1) ** 2
    assert round(2.8016**2 * 2 * (0.09 + noise) / 0.01**2) == 158_655


def test_a_smaller_error_or_more_arms_takes_more_users():
    two, three, exact = (
        arm_users(BINARY, effect)[-1]
        for effect in (Effect(0.1, 0.2), Effect(0.1, 0.2, arms=3), Effect(0.1, 0.2, error=0.025))
    )
    assert two.once < three.once == exact.once
    assert two.always < three.always == exact.always


def test_a_smaller_share_in_the_arm_is_told_alike():
    up, down = (arm_users(BINARY, effect)[-1] for effect in (Effect(0.1, 0.2), Effect(0.2, 0.1)))
    assert up.always == down.always


def test_a_mean_is_in_its_unit():
    given = {"scale": 200.0, "low": 100.0}
    asked = question_of("number", [2_000_000], {}, mechanism="duchi", **given)
    assert arm_users(asked, Effect(120.0, 122.0))[-1].once == 42_544
    with pytest.raises(ParameterError, match=r"310 must lie in \[100, 300\]"):
        arm_users(asked, Effect(120.0, 310.0))


def test_several_reports_of_a_device_count_once():
    plan = parse_plan(PLAN_YAML).compile()
    metric = plan.metric("carrier")
    asked = question_of_metric(plan, metric)
    assert asked.most_reports == plan.most_reports(metric) > 1
    row = arm_users(asked, Effect(0.1, 0.11))[-1]
    scores = metric.mechanism.scores(metric.sent - 1)
    once = 2 * scores.variance(0.1) * (1.959964 + 0.841621) ** 2 / 0.01**2
    assert row.once == pytest.approx(once / min(asked.per_user, 1), rel=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 0.2, "arm": 0.2},
        {"first": 0.1, "arm": 0.2, "power": 1.0},
        {"first": 0.1, "arm": 0.2, "power": 0.05},
        {"first": 0.1, "arm": 0.2, "error": 0.0},
        {"first": 0.1, "arm": 0.2, "arms": 1},
    ],
)
def test_what_is_no_experiment_is_refused(wrong):
    with pytest.raises(ParameterError):
        Effect(**wrong)


def test_the_command_answers(capsys, tmp_path):
    plan = tmp_path / "plan.yaml"
    text = PLAN_YAML.replace("metrics:", "experiment: {name: trial, arms: [a, b, c]}\nmetrics:")
    plan.write_text(text)
    options = ["design", str(plan), "--metric", "carrier", "--experiment", "10%:0.11"]
    assert sotto_cli.main(options) == 0
    printed = capsys.readouterr().out
    assert "to tell each of 2 arms of 0.11 from the first of 0.1; power 80 %, error 5 %" in printed
    assert "not randomized" in printed
    assert sotto_cli.main([*options, "--arms", "2", "--power", "0.9", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"][0]
    assert found["experiment"] == {
        "first": 0.1,
        "arm": 0.11,
        "power": 0.9,
        "error": pytest.approx(0.05),
        "arms": 2,
        "looks": 5,
    }
    assert found["arms"][0]["level"] is None
    assert (
        sotto_cli.main(["design", "--type", "boolean", "--ladder", "1", "--experiment", "10%"]) == 2
    )
    assert "must be two numbers, such as 10%:11% or 410:400" in capsys.readouterr().err
    strings = ["design", "--type", "string", "--ladder", "1", "--candidates", "9"]
    assert sotto_cli.main([*strings, "--experiment", "1%:2%"]) == 2
    assert "arms are not compared by rappor" in capsys.readouterr().err
