"""The compiled plan: read exactly, refused otherwise; values to symbols without refusing any."""

import copy
import hashlib
import math
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from agreed_plans import DAY, HOUR, PLAN_YAML, canonical, compiled, plan_document
from hypothesis import given, settings
from hypothesis import strategies as st

from sotto.errors import PlanError, UnknownMetricError, ValueTypeError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

LIES = yaml.safe_load((Path(__file__).parent / "compiled_lies.yaml").read_text("utf-8"))


def test_a_plan_survives_being_written_and_read():
    plan = parse_plan(PLAN_YAML).compile()
    again = CompiledPlan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == hashlib.sha256(plan.to_json()).digest()
    assert pickle.loads(pickle.dumps(again)) == plan  # noqa: S301
    assert pickle.loads(pickle.dumps(again)).fingerprint == plan.fingerprint  # noqa: S301


def test_what_follows_from_a_plan():
    plan = compiled()
    assert plan.horizon == max(metric.horizon for metric in plan.metrics) == 15 * DAY
    assert plan.metrics[2].horizon == 9 * DAY
    assert plan.truncate(-1) == -HOUR
    assert plan.truncate(HOUR) == HOUR
    assert (plan.period_of(-1), plan.period_of(0)) == (-1, 0)
    assert plan.metrics[0].cost == 2_000_000
    with pytest.raises(UnknownMetricError, match="has colour, place, size; did you mean 'colour'"):
        plan.metric("colr")
    assert plan.metric("size").index == 2


def refused(document, said=""):
    with pytest.raises(PlanError) as caught:
        CompiledPlan.from_json(document if isinstance(document, bytes) else canonical(document))
    assert said in str(caught.value)


def changed(path, value):
    """Return a plan's document with another value at a path."""
    document = copy.deepcopy(plan_document())
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize("path", [("ceilings", "lifetime"), ("metrics", 0, "ladder", 0, "epsilon")])
def test_an_absurd_amount_is_a_plan_error(path):
    refused(changed(path, 10**400), "is too large")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"format":2}',
        canonical(plan_document()).replace(b'"version":1', b'"version":' + b"9" * 5000),
        canonical(plan_document()).replace(b"[0.0,1.0]", b"[0.0,NaN]"),
        canonical(plan_document()).replace(b"[0.0,1.0]", b"[0.0,Infinity]"),
        canonical(plan_document()).replace(b"[0.0,1.0]", b"[0,1]"),
        canonical(plan_document()).replace(b"[0.0,1.0]", b"[0.0," + b"9" * 400 + b"]"),
        canonical(plan_document()).replace(b'"colour"', b'"\\ud800"'),
        canonical(plan_document()).replace(b'["a","b"]', b'["a","\\ud800"]'),
        canonical(plan_document()).replace(b'["a","b"]', b'["a",null]'),
    ],
    ids=range(14),
)
def test_bytes_that_are_no_canonical_plan_are_refused(data):
    refused(data)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie["says"])
def test_a_compiled_plan_that_lies_is_refused(lie):
    refused(changed(lie["at"], lie["is"]), lie["says"])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_compiled_plan_is_refused_or_another_plan(data):
    sound = canonical(plan_document())
    damaged = bytearray(sound)
    at = data.draw(st.integers(0, len(sound) - 1))
    damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        plan = CompiledPlan.from_json(bytes(damaged))
    except PlanError:
        return
    assert plan.to_json() == damaged


@pytest.mark.parametrize("name", ["sort", "certified"])
def test_a_mechanism_that_costs_more_than_it_says_is_refused(monkeypatch, name):
    from sotto.plan.compiled import check

    class Liar:
        payload_width, count_length = 1, 3

        def certified(self, level):
            return 2_000_001 if name == "certified" else 500_000

    plan = compiled()
    monkeypatch.setitem(plan.metrics[0].__dict__, "mechanism", Liar())
    with pytest.raises(PlanError, match=r"metric 'colour', level \d: certified epsilon"):
        check(plan)


class TestEncode:
    colour, place, size = compiled().metrics

    def test_categories(self):
        assert self.colour.labels == ("a", "b", "other")
        values = ("a", "b", "zzz", "", "other")
        assert [self.colour.encode(value) for value in values] == [0, 1, 2, 2, 2]
        with_value = plan_document()
        with_value["metrics"][0].update(outside="b", missing=True)
        metric = CompiledPlan.from_json(canonical(with_value)).metrics[0]
        assert metric.labels == ("a", "b", "missing")
        assert [metric.encode(value) for value in ("a", "zzz", None)] == [0, 1, 2]

    def test_booleans(self):
        document = plan_document()
        document["metrics"][0].update(type="boolean", missing=True)
        del document["metrics"][0]["domain"], document["metrics"][0]["outside"]
        metric = CompiledPlan.from_json(canonical(document)).metrics[0]
        assert metric.labels == ("false", "true", "missing")
        assert [metric.encode(value) for value in (False, True, None, np.True_)] == [0, 1, 2, 1]
        for value in (0, 1, "true"):
            with pytest.raises(ValueTypeError):
                metric.encode(value)

    def test_strings(self):
        assert self.place.encode("Åre") == b"\xc3\x85re"
        assert self.place.encode("\ud800") == b"\xed\xa0\x80"
        assert self.place.labels == ()

    @given(st.floats() | st.integers() | st.fractions())
    def test_every_number_is_encoded(self, value):
        symbol = self.size.encode(value)
        if symbol is None:
            assert math.isnan(value)
        else:
            assert symbol == min(max(float(min(max(value, -1), 2)), 0.0), 1.0)

    def test_numbers(self):
        encode = self.size.encode
        assert (encode(-math.inf), encode(-(10**400))) == (0, 0)
        assert (encode(math.inf), encode(10**400)) == (1, 1)
        assert encode(Fraction(1, 4)) == encode(np.float32(0.25)) == encode(0.25) == 0.25
        assert encode(np.int64(1)) == 1.0
        assert encode(None) is None
        assert encode(math.nan) is None

    @pytest.mark.parametrize(
        "value", [b"secret", ["secret"], {"secret": 1}, None, True, 1j, "secret"]
    )
    def test_a_wrong_type_is_refused_without_the_value(self, value):
        for metric in (self.colour, self.place, self.size):
            if (value is None and metric.missing) or (
                metric is not self.size and value == "secret"
            ):
                continue
            expected = f"metric '{metric.name}' expects .*; got"
            with pytest.raises(ValueTypeError, match=expected) as caught:
                metric.encode(value)
            assert "secret" not in str(caught.value)


class TestRegistry:
    def test_metrics_are_numbered_through(self):
        first = compiled()
        second = compiled(version=2, ceilings={"period": 6 * 10**6, "lifetime": 10**8})
        registry = Registry([first, second, first])
        assert registry.plans == (first, second)
        assert [each.id for each in registry.metrics] == list(range(6))
        fingerprints = [first.fingerprint] * 3 + [second.fingerprint] * 3
        assert [each.fingerprint for each in registry.metrics] == fingerprints
        assert registry.metrics[4].metric is second.metrics[1]
        assert registry.budget == 12_000_000
        assert registry.horizon == 15 * DAY
        assert registry.period_of(-1) == -1
        assert registry.by_fingerprint[second.fingerprint] is second
        assert pickle.loads(pickle.dumps(registry)).metrics == registry.metrics  # noqa: S301

    @pytest.mark.parametrize(
        ("what", "value"),
        [("collector", "other"), ("period", 14 * DAY), ("resolution", 2 * HOUR), ("shards", 9)],
    )
    def test_plans_that_cannot_share_a_ledger_are_refused(self, what, value):
        with pytest.raises(PlanError, match=f"version 2: {what} .* must be"):
            Registry([compiled(), compiled(version=2, **{what: value})])

    def test_a_registry_has_a_plan(self):
        with pytest.raises(PlanError, match="least"):
            Registry([])
