"""The plan's name on the wire is no tag, and an app can pin a plan by it or by its digest."""

from __future__ import annotations

import pytest
from device_plans import DAY, START, WEEK, metric, number, plan, seeded, threadless

from clientsdk import Client, MemoryPublisher
from sotto.errors import ParameterError, PlanError


def test_what_an_aggregator_does_not_need_leaves_no_trace_on_the_wire():
    other = {"owner": "you@a.example", "expires": START + 521 * WEEK, "retention": 31 * DAY}
    sent = []
    for unit, changes in (("km", {}), ("mi", other)):
        client = seeded(plan(metric("colour"), number("size", unit=unit), **changes))
        client.record("colour", "b")
        client.record("size", 3.5)
        for _ in range(8):
            client.clock.advance(days=1)
            client.flush()
        sent.append(client.publisher.messages)
    assert sent[0] == sent[1] != []


def test_an_app_pins_the_plan_that_it_was_made_for(tmp_path):
    path = tmp_path / "device.db"
    wanted, other = plan(), plan(version=2)
    options = {"state": path, "publisher": MemoryPublisher(), "background": False}
    with pytest.raises(PlanError) as caught:
        Client(other, expect=wanted.fingerprint_hex, **options)
    assert wanted.fingerprint_hex in str(caught.value)
    assert other.fingerprint_hex in str(caught.value)
    # Nothing was opened, and so nothing pinned.
    assert not path.exists()
    Client(wanted.to_json(), expect=wanted.fingerprint_hex.upper(), **options).close()
    Client(plan(owner="else@fleet.example"), expect=wanted.fingerprint_hex, **options).close()
    # The digest pins texts and dates too.
    Client(wanted, expect=wanted.digest.hex(), **options).close()
    with pytest.raises(PlanError, match="made for"):
        Client(plan(purpose="Another"), expect=wanted.digest.hex(), **options)


@pytest.mark.parametrize("expect", ["", "abc", "g" * 64, "0" * 63, b"0" * 32, 7])
def test_what_is_no_fingerprint_cannot_be_pinned(expect):
    with pytest.raises(ParameterError):
        threadless(plan(), expect=expect)
