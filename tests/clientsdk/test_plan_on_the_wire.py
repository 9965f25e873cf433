"""The plan's name on the wire is no tag, a plan can be pinned, and documents keep their word."""

from __future__ import annotations

import pytest
from device_plans import DAY, START, WEEK, metric, number, plan, reports

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import ParameterError, PlanError
from sotto.plan.compiled import CompiledPlan

SURVEY = {
    **{key: value for key, value in metric("asked").items() if key not in ("domain", "outside")},
    "type": "survey",
    "mechanism": {"name": "warner"},
}


def asked(question: str = "Did you?", unit: str = "km", **changes: object) -> CompiledPlan:
    """A plan that has every key that no aggregator needs to decode."""
    metrics = (metric("colour"), number("size", unit=unit), {**SURVEY, "question": question})
    return plan(*metrics, **changes)


def life(under: CompiledPlan) -> list[tuple[int, bytes]]:
    """All that a device sends that is given this plan, of given coins."""
    client = SeededClient(under, seed=5, clock=FakeClock(START))
    for _ in range(2):
        for name, value in (("colour", "b"), ("size", 3.5), ("asked", True)):
            assert client.record(name, value) is Outcome.ACCEPTED
        for _ in range(8):
            client.clock.advance(days=1)
            client.flush()
    return client.publisher.messages


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "you-in-particular@fleet.example"},
        {"expires": START + 521 * WEEK},
        {"retention": 31 * DAY},
        {"unit": "mi"},
        {"question": "Did you, Ms. Particular?"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_an_aggregator_does_not_need_leaves_no_trace_on_the_wire(changes):
    sent = life(asked())
    assert len(sent) > 4
    assert life(asked(**changes)) == sent


def recorded(under, path, clock, publisher, *values):
    with SeededClient(under, seed=clock.now, state=path, clock=clock, publisher=publisher) as made:
        for value in values:
            assert made.record("colour", value) is Outcome.ACCEPTED
        made.flush()
        return made.ledger()


def test_a_chain_keeps_the_expiry_that_it_was_recorded_under(tmp_path):
    """A later document with the same fingerprint prolongs nothing, and is used from then on."""
    path, clock, publisher = tmp_path / "device.db", FakeClock(START), MemoryPublisher()
    first = plan(metric("colour", "every", 2), expires=START + 3 * DAY)
    longer = plan(metric("colour", "every", 2), expires=START + 52 * WEEK)
    assert first.fingerprint == longer.fingerprint
    recorded(first, path, clock, publisher, "a")
    recorded(longer, path, clock, publisher, "b")
    for _ in range(20):
        clock.advance(hours=12)
        ledger = recorded(longer, path, clock, publisher)
    levels = {}
    for report in reports(publisher.messages):
        levels.setdefault(report.chain, []).append(report.level)
        assert report.fingerprint == longer.fingerprint
    assert sorted(levels.values()) == [[0, 1], [0, 1, 2]]
    assert ledger.pending == ()


def test_an_earlier_expiry_stops_what_is_recorded_from_then_on(tmp_path):
    path, clock, publisher = tmp_path / "device.db", FakeClock(START), MemoryPublisher()
    recorded(plan(metric("colour", "every", 2)), path, clock, publisher, "a")
    ended = plan(metric("colour", "every", 2), expires=START)
    with SeededClient(ended, seed=2, state=path, clock=clock, publisher=publisher) as client:
        assert client.record("colour", "b") is Outcome.EXPIRED


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
        Client(
            plan(),
            expect=expect,
            state=NO_LIFETIME_BOUND,
            publisher=MemoryPublisher(),
            background=False,
        )
