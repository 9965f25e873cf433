"""To keep no state file is a choice that an app has to name."""

from __future__ import annotations

import pytest
from device_plans import START, metric, plan
from scripts import run

import clientsdk
from clientsdk import Client, MemoryPublisher, Outcome
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import ParameterError


def device(state, **options):
    return Client(
        plan(metric("colour")),
        state=state,
        publisher=MemoryPublisher(),
        clock=FakeClock(START),
        background=False,
        **options,
    )


@pytest.mark.parametrize("state", [None, "", ":memory:"])
def test_what_is_no_path_is_refused_by_an_error_that_names_the_constant(state):
    with pytest.raises(ParameterError, match=r"clientsdk\.NO_LIFETIME_BOUND"):
        device(state)


def test_the_constant_says_what_it_costs():
    assert clientsdk.NO_LIFETIME_BOUND.value == "no lifetime bound survives this process"


def test_named_it_is_warned_of_once_a_process(caplog):
    for _ in range(3):
        with device(clientsdk.NO_LIFETIME_BOUND) as client:
            client.give_consent()
            assert client.record("colour", "a") is Outcome.ACCEPTED
    (warning,) = caplog.records
    assert "no lifetime bound survives this process" in warning.getMessage()


def test_no_warning_where_there_is_nothing_to_lose(caplog, tmp_path):
    """With a file, switched off, and in tests of apps."""
    device(tmp_path / "device.db").close()
    device(clientsdk.NO_LIFETIME_BOUND, settings=clientsdk.Settings(disabled=True)).close()
    SeededClient(plan(), seed=1).close()
    assert caplog.records == []


def test_an_app_without_logging_sees_it_on_standard_error(tmp_path):
    code = """
import io
sys.stderr = io.StringIO()
client = device(metric("colour"), state=NO_LIFETIME_BOUND)
print(sys.stderr.getvalue())
"""
    assert "no lifetime bound" in run(code, tmp_path)
