"""Constant metrics: one permanent response for life, charged once, said again in each period."""

from __future__ import annotations

from collections import Counter

import pytest
from device_plans import CONSTANT, START, VAST, metric, number, plan
from statistical import check_counts

from clientsdk.store import permanent
from clientsdk.store.database import READ
from clientsdk.testing import FakeClock, SeededClient


def constant(name="model", **changes):
    return metric(name, "constant", ladder=changes.pop("ladder", CONSTANT), **changes)


# The binding of a response.


def test_a_binding_is_that_of_the_plan_s_json():
    compiled = plan(constant(), number("size"), ceilings=VAST)
    bindings = [permanent.binding_of(compiled, each) for each in compiled.metrics]
    assert len(set(bindings)) == 2
    assert {len(binding) for binding in bindings} == {32}
    again = plan(number("size"), constant(), ceilings=VAST, version=5, owner="someone else")
    assert permanent.binding_of(again, again.metric("model")) == bindings[0]


# The law of what is sent.


#: Metrics of a device, each of which has a permanent response of its own.
EACH = 40


def pairs(responses, seed):
    """The strongest levels sent in two periods from each response to the first symbol."""
    seen = Counter()
    changes = {"domain": ["a", "b"], "mechanism": {"name": "grr", "domain_size": 3}}
    ladder = [(1_500_000, 0), (2_500_000, 0)]
    models = [constant(f"model{number}", ladder=ladder, **changes) for number in range(EACH)]
    compiled = plan(*models, ceilings=VAST)
    for each in range(responses // EACH):
        client = SeededClient(compiled, seed=seed + each, clock=FakeClock(START))
        for value in "ab":
            for known in compiled.metrics:
                client.record(known.name, value)
            client.clock.advance(days=7)
        with client._store.transaction(READ) as connection:
            rows = connection.execute("SELECT payloads FROM chain ORDER BY metric, period")
            strongest = [payload[0] for (payload,) in rows.fetchall()]
        seen.update(zip(strongest[::2], strongest[1::2], strict=True))
        client.close()
    return seen, compiled.metrics[0].mechanism.chain


def law(chain):
    """The exact joint law of two periods, each drawn from one permanent response."""
    size, strongest, (step,) = chain.size, chain.strongest.pair, chain.steps

    def moved(rung, start, end):
        return rung.p if start == end else rung.q

    return {
        (one, two): sum(
            moved(strongest, 0, kept) * moved(step.pair, kept, one) * moved(step.pair, kept, two)
            for kept in range(size)
        )
        for one in range(size)
        for two in range(size)
    }


@pytest.mark.slow
def test_periods_are_degradations_of_one_response():
    seed = 70_000
    seen, chain = pairs(1200, seed)
    exact = law(chain)
    check_counts([seen[pair] for pair in exact], list(exact.values()), label=seed)


@pytest.mark.slow
def test_responses_drawn_anew_would_be_seen(monkeypatch):
    """The planted fault: every period draws a response of its own."""
    monkeypatch.setattr(permanent, "response", lambda connection, binding: None)
    monkeypatch.setattr(permanent, "keep", lambda *given: None)
    # A third of the devices above is enough to see it.
    seen, chain = pairs(400, 70_000)
    exact = law(chain)
    with pytest.raises(AssertionError):
        check_counts([seen[pair] for pair in exact], list(exact.values()), label=70_000)


def test_other_words_about_a_metric_need_no_other_response(path):
    """Nor does another group: a second response would cost the lifetime a second time."""
    groups = {"all": "Everything", "some": "Some of it"}
    worded = {"description": "The model", "purpose": "To know", "data_type": "device"}
    first = plan(metric("model", "constant", ladder=CONSTANT))
    second = plan(
        metric("model", "constant", ladder=CONSTANT, group="all", **worded),
        metric("colour", group="some"),
        groups=groups,
        version=2,
    )
    assert permanent.binding_of(first, first.metrics[0]) == permanent.binding_of(
        second, second.metrics[0]
    )
