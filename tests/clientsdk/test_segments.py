"""Segments and arms on a device: fixed when a value is recorded, and sent in the header alone."""

from __future__ import annotations

from collections import Counter

from device_plans import START, VAST, metric, plan

from clientsdk import NO_LIFETIME_BOUND, Client, Consent, MemoryPublisher, Outcome
from clientsdk.testing import FakeClock, SeededClient
from sotto.plan.segments import cell_label
from sotto.wire.format import decode_message

SEGMENTS = [{"name": "os", "values": ["linux", "mac"]}]
COLOUR = metric("colour", "every", 9)
EXPERIMENT = {"name": "onboarding", "arms": ["control", "treatment"], "share": 500_000}


def cells(client):
    """How many rows were sent in each cell, of all levels."""
    found = Counter()
    for _, body in client.publisher.messages:
        message = decode_message(body)
        where = cell_label(client.plan.attributes, message.cell)
        found[where] += sum(len(group.rows) for group in message.groups)
    return found


# Arms.


def test_what_is_sent_says_the_arm_that_the_app_was_told():
    told = Counter()
    known = plan(COLOUR, experiment=EXPERIMENT, ceilings=VAST)
    for seed in range(40):
        client = SeededClient(known, seed=seed, clock=FakeClock(START))
        arm = client.arm("onboarding")
        client.record("colour", "a")
        client.clock.advance(days=1)
        client.flush()
        assert [*cells(client)] == [f"onboarding={arm or 'none'}"]
        told[arm] += 1
    assert set(told) == {None, "control", "treatment"}


def test_a_mistake_about_segments_never_stops_an_app_that_asked_for_that(caplog):
    options = {"state": NO_LIFETIME_BOUND, "publisher": MemoryPublisher(), "background": False}
    options |= {"clock": FakeClock(START)}
    compiled = plan(COLOUR, segments=SEGMENTS, experiment=EXPERIMENT, ceilings=VAST)
    client = Client.open(compiled, segments={"os": "linux"}, **options)
    client.give_consent()
    client.set_segments({"secret": "x"})
    assert "segments are left as they are" in caplog.text
    assert "secret" not in caplog.text
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client.ledger().pending[0].segment.startswith("os=linux")
    broken = Client.open(compiled, segments={"secret": "x"}, **options)
    assert broken.stats().disabled.startswith("segments: the plan has no such segment")
    assert broken.consent is Consent.NEVER_GIVEN
