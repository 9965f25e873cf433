"""Debug lines say what happens, and nothing of a value."""

from __future__ import annotations

import logging

import pytest
from device_plans import START, items, metric, number, plan, seeded
from scripts import run

from clientsdk import MemoryPublisher, Outcome, Settings
from clientsdk.testing import FakeClock, SeededClient

PLAN = plan(
    metric("colour"), number("size", kind="reservoir", ladder=[(500_000, 604_800_000)]), items()
)


def life(value, size, seed, caplog):
    """Return what is said of a device that records these values."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="clientsdk"):
        client = SeededClient(PLAN, seed=seed, clock=FakeClock(START), consent=False)
        client.record("colour", value)
        client._store.refusals.clear()
        client.give_consent()
        for _ in range(3):
            client.record("colour", value)
            client.record("size", size)
            client.record("app", value)
        client.clock.advance(days=10)
        client.flush()
        client.clock.now = 0
        client.record("colour", value)
        client.close()
    return [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]


def test_what_is_said_is_the_same_for_all_values(caplog):
    # Other draws too: nothing that is drawn shows either.
    said = life("a", 1.0, 1, caplog)
    assert said == life("c", 9.5, 2, caplog) == life("nowhere", None, 3, caplog)
    assert "colour: no_consent" in said
    assert "colour: accepted; the first of 3 reports is due within 2h" in said
    assert "colour: period_full" in said
    assert "colour: bad_clock" in said
    assert any(line.startswith("app: accepted; it is counted") for line in said)
    assert any(line.startswith("sent 3 reports; 0 are due and remain") for line in said)


def test_a_lifetime_that_was_raised_is_not_said_to_be_used_up(path, caplog):
    """It had nothing left for a version of the plan, for which the period has not enough now."""
    other = metric("other", ladder=[(2_000_000, 0)])
    versions = (
        plan(metric("colour", "reservoir", ladder=[(epsilon, 604_800_000)]), other, version=version)
        for version, epsilon in enumerate((1_000_000, 3_000_000), start=1)
    )
    options = {"seed": 1, "clock": FakeClock(START), "state": path, "ceilings": (4, 90)}
    cheap, dear = (SeededClient(version, **options) for version in versions)
    dear._recorder.decisions.spent["trial/colour"] = True
    assert {cheap.record("colour", "a"), cheap.record("other", "a")} == {Outcome.ACCEPTED}
    with caplog.at_level(logging.INFO, logger="clientsdk"):
        assert Outcome.OVER_BUDGET in [dear.record("colour", "a") for _ in range(30)]
    assert caplog.records == []


@pytest.mark.real_randomness
def test_lines_are_printed_where_an_app_configures_no_logging(path):
    code = """
os.environ["SOTTO_LOG"] = "debug"
client = Client(plan(metric("colour")), state=path, publisher=MemoryPublisher(),
                clock=lambda: START / 1000, background=False)
client.give_consent()
client.record("colour", "a")
import io
sys.stderr = io.StringIO()
client.record("colour", "b")
print(sys.stderr.getvalue(), end="")
client.close()
"""
    assert run(code, path) == "clientsdk: colour: period_full\n"


@pytest.mark.parametrize("level", [None, "warning"])
def test_nothing_is_said_unless_it_is_asked_for(level, caplog):
    publisher = MemoryPublisher()
    with seeded(PLAN, publisher=publisher, settings=Settings(log=level)) as client:
        client.record("colour", "a")
    assert caplog.records == []
    logging.getLogger("clientsdk").setLevel(logging.NOTSET)
