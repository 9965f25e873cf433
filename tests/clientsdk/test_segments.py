"""Segments and arms on a device: fixed when a value is recorded, and sent in the header alone."""

from __future__ import annotations

from collections import Counter

from device_plans import START, VAST, metric, plan

from clientsdk import NO_LIFETIME_BOUND, Client, Consent, MemoryPublisher, Outcome
from clientsdk.ledger import read_file
from clientsdk.preview import preview_file
from clientsdk.testing import FakeClock, SeededClient
from sotto.plan.segments import cell_label
from sotto.wire.format import decode_message

SEGMENTS = [{"name": "os", "values": ["linux", "mac"]}]
EXPERIMENT = {"name": "onboarding", "arms": ["control", "treatment"], "share": 500_000}


def segmented(*metrics, **changes):
    changes = {"ceilings": VAST, "segments": SEGMENTS, "experiment": EXPERIMENT, **changes}
    said = {name: value for name, value in changes.items() if value}
    return plan(*metrics or (metric("colour", "every", 9),), **said)


def device(compiled, seed=1, **options):
    options.setdefault("clock", FakeClock(START))
    return SeededClient(compiled, seed=seed, **options)


def cells(client):
    """How many rows were sent in each cell, of all levels."""
    found = Counter()
    for _, body in client.publisher.messages:
        message = decode_message(body)
        where = cell_label(client.plan.attributes, message.cell)
        found[where] += sum(len(group.rows) for group in message.groups)
    return found


def test_people_see_what_is_sent_in_the_clear(path):
    client = device(segmented(experiment=None), state=path, segments={"os": "mac"})
    client.record("colour", "a")
    assert "sent with os=mac" in client.ledger().in_words()
    assert "sent with it in the clear: os=mac" in client.preview().in_words()
    client.close()
    assert [each.segment for each in read_file(path).pending] == ["os=mac"]
    assert {each.segment for each in preview_file(path, START).reports} == {"os=mac"}


def test_a_value_that_capitals_alone_keep_from_its_segment_is_told(caplog):
    client = device(segmented(experiment=None), segments={"os": "Linux"})
    client.set_segments({"os": "plan9"})
    said = [each.getMessage() for each in caplog.records]
    assert said == ["segment 'os' counts as other: the plan lists 'linux', so written"]


# Arms.


def test_what_is_sent_says_the_arm_that_the_app_was_told():
    told = Counter()
    for seed in range(40):
        client = device(segmented(segments=[]), seed=seed)
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
    compiled = segmented()
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
