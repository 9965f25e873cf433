"""Constant metrics: what a permanent response is bound to."""

from __future__ import annotations

from device_plans import CONSTANT, VAST, metric, number, plan

from clientsdk.store import permanent


def test_other_words_about_a_metric_need_no_other_response():
    """Nor does another group: a second response would cost the lifetime a second time."""
    first = plan(metric("model", "constant", ladder=CONSTANT), number("size"), ceilings=VAST)
    bindings = [permanent.binding_of(first, each) for each in first.metrics]
    assert len(set(bindings)) == 2
    assert {len(binding) for binding in bindings} == {32}
    worded = {"description": "The model", "purpose": "To know", "data_type": "device"}
    second = plan(
        number("size", group="some"),
        metric("model", "constant", ladder=CONSTANT, group="all", **worded),
        groups={"all": "Everything", "some": "Some of it"},
        version=2,
        owner="someone else",
    )
    assert permanent.binding_of(second, second.metric("model")) == bindings[0]
