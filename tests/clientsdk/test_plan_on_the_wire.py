"""The plan's name on the wire is no tag, a plan can be pinned, and documents keep their word."""

from __future__ import annotations

import pytest
from device_plans import DAY, START, WEEK, metric, number, plan

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
