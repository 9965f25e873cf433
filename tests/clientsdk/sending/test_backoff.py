"""How long is waited between attempts."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from clientsdk import diagnostics
from clientsdk.sending import backoff


def test_the_longest_wait_doubles_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(backoff, "chance", lambda: 1.0)
    assert [backoff.delay(n) for n in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert backoff.delay(10) == backoff.delay(10**6) == backoff.LONGEST


def test_waits_are_spread_over_the_whole_of_it():
    """The mean of 4,000 uniform numbers is off by 0.05 with a chance below 1e-25."""
    drawn = [backoff.delay(5) / 32 for _ in range(4000)]
    assert all(0 <= each < 1 for each in drawn)
    assert abs(sum(drawn) / len(drawn) - 0.5) < 0.05
    assert min(drawn) < 0.02
    assert max(drawn) > 0.98


@pytest.mark.parametrize(
    ("hint", "least"), [(None, 0), (30.0, 30), (-5.0, 0), (float("nan"), 0), (1e12, 86_400), (0, 0)]
)
def test_hints(monkeypatch, hint, least):
    monkeypatch.setattr(backoff, "chance", lambda: 0.5)
    assert backoff.delay(1, hint) == least + 1


def test_a_cause_is_logged_once_in_a_while(monkeypatch, caplog):
    now = [1000.0]
    monkeypatch.setattr(diagnostics.time, "monotonic", lambda: now[0])
    caplog.set_level(logging.DEBUG)

    def told(cause="store", **options):
        before = len(caplog.records)
        diagnostics.warn(cause, "%s", cause, **options)
        return len(caplog.records) > before

    assert told()
    assert not told()
    assert told("quota")
    now[0] += diagnostics.QUIET - 1
    assert not told()
    now[0] += 1
    assert told()
    assert not told(quiet=3600)
    now[0] += 3600
    assert told(quiet=3600)


SAYS = """
import sys
from clientsdk import diagnostics
{first}
diagnostics.warn("store", "%s of %s", "10 %", "all")
diagnostics.warn("store", "again")
diagnostics.warn("quota", "no more than 10 %")
assert "logging" {there} sys.modules
"""


@pytest.mark.real_randomness
@pytest.mark.parametrize(
    ("first", "there", "told"),
    [
        ("", "not in", "10 % of all\nno more than 10 %\n"),
        ("import logging", "in", "10 % of all\nno more than 10 %\n"),
        ("import logging; logging.lastResort.emit = None", "in", ""),
        ("diagnostics.set_level('error')", "in", ""),
        ("sys.stderr = None", "not in", ""),
        ("sys.stderr.close()", "not in", ""),
    ],
)
def test_an_app_without_handlers_and_without_logging_sees_the_same(first, there, told):
    code = SAYS.format(first=first, there=there)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", told)


def test_a_handler_is_told_nothing_of_what_it_records(monkeypatch, caplog):
    caplog.set_level("DEBUG", "clientsdk")
    told = []

    class Recording(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())
            diagnostics.debug("again")

    monkeypatch.setattr(logging.getLogger("clientsdk"), "handlers", [Recording()])
    diagnostics.debug("first")
    diagnostics.debug("second")
    assert told == ["first", "second"]
