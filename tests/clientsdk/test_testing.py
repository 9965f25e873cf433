"""Tools for tests of apps, and that no app in production can reach their randomness."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
import warnings

import numpy
import pytest
from device_plans import DAY, START, metric, number, plan, seeded
from scenario_plans import measured_plan

from clientsdk import Client, EmbeddedLogPublisher, MemoryPublisher, Outcome, Quota, Settings
from clientsdk.settings import VARIABLES
from clientsdk.testing import (
    FakeClock,
    OutsideDomainWarning,
    Recorded,
    SeededClient,
    WatchedClient,
    reported,
    small_plan,
)
from mechanisms.randomness import SystemSource
from sotto.errors import ParameterError, UnknownMetricError, ValueTypeError
from sotto.plan.compiled import Ceilings


@pytest.fixture
def client():
    client = seeded(plan(metric("colour"), metric("shape", "every", limit=3)))
    client.record("colour", "a")
    for value in ("a", "b", "c"):
        client.record("shape", value)
    client.clock.advance(hours=3)
    client.flush()
    return client


def test_reports_are_read_as_an_aggregator_reads_them(client):
    all_ = reported(client)
    assert [each.metric for each in all_] == ["colour", "shape", "shape", "shape"]
    report = all_.of("colour").only()
    assert (report.level, report.epsilon, report.event) == (1, 500_000, START)
    assert (report.shard, report.message) == (client.publisher.messages[0][0], 0)
    assert report.meaning in {"'a'", "'b'", "'c'", "'other'"}
    assert report.payload in client.publisher.messages[0][1]
    assert len({each.chain for each in all_}) == 4
    assert {each.pseudonym for each in all_} == {report.pseudonym}


def test_only_the_newest_of_a_chain_counts(client):
    client.clock.advance(days=2)
    client.flush()
    found = reported(client).of("shape")
    assert len(found) == 6
    assert [each.level for each in found.newest.exactly(3)] == [2, 2, 2]
    assert found[0].level == 1
    assert len(found[:2]) == 2


def test_the_same_seed_says_the_same_and_another_something_else():
    def said(seed):
        client = SeededClient(
            plan(metric("shape", "every", limit=3, ladder=[(500_000, 0)]), metric("size")),
            seed=seed,
            clock=FakeClock(START),
        )
        for _ in range(3):
            client.record("shape", "a")
        client.clock.advance(days=1)
        client.flush()
        return [each.chain for each in reported(client)]

    assert said(1) == said(1) != said(2)


def test_an_error_lists_what_there_is_instead(client):
    with pytest.raises(AssertionError) as caught:
        reported(client).of("shape").only()
    lines = str(caught.value).splitlines()
    assert lines[0] == "expected 1, but there are 3 reports of 'shape'"
    assert all(line.startswith("  shape, level 1, says '") for line in lines[1:])
    other = SeededClient(plan(metric("size")), seed=1)
    with pytest.raises(AssertionError, match=r"^expected 2, but there are 0 reports of 'size'$"):
        reported(other).of("size").exactly(2)
    with pytest.raises(UnknownMetricError):
        reported(client).of("shap")


def test_reports_of_other_plans_and_other_publishers_are_not_guessed_at(client, tmp_path):
    other = SeededClient(small_plan(), seed=1, publisher=client.publisher)
    with pytest.raises(ParameterError, match="another plan"):
        reported(other)
    with pytest.raises(TypeError, match="got EmbeddedLogPublisher"):
        reported(
            SeededClient(
                small_plan(), seed=1, publisher=EmbeddedLogPublisher(tmp_path), leaks_values=True
            )
        )


def test_a_watched_client_keeps_what_the_app_recorded():
    client = WatchedClient(small_plan())
    assert client.record("colour", "red") is Outcome.ACCEPTED
    assert client.record("colour", "green") is Outcome.PERIOD_FULL
    with pytest.raises(ValueTypeError):
        client.record("colour", 3)
    assert client.recorded == [
        Recorded("colour", "red", Outcome.ACCEPTED),
        Recorded("colour", "green", Outcome.PERIOD_FULL),
    ]
    assert client.values("colour") == ["red"]
    with pytest.raises(UnknownMetricError):
        client.values("color")


def test_a_clock_takes_numbers_of_numpy():
    assert FakeClock(numpy.int64(5000))() == 5


def test_a_watched_client_keeps_what_is_measured():
    client = WatchedClient(measured_plan("exports", "checkout", "total"))
    client.count("export", 3)
    # No warning: it may be one of several that are within together.
    client.count("export", -1)
    client.record("load", 30)
    client.reach("checkout", "paid")
    with pytest.warns(OutsideDomainWarning, match="metric 'checkout'"):
        client.reach("checkout", "piad")
    assert client.values("exports") == [3, -1]
    assert client.values("total") == [30]
    assert client.values("checkout") == ["paid", "piad"]


def test_tests_are_not_configured_by_the_environment(monkeypatch):
    monkeypatch.setenv("SOTTO_CLOSE_TIMEOUT", "9")
    client = SeededClient(small_plan(), seed=1)
    assert client.settings.close_timeout == Settings().close_timeout
    assert client.record("colour", "red") is Outcome.ACCEPTED
    off = SeededClient(small_plan(), seed=1, settings=Settings(disabled=True))
    assert off.record("colour", "red") is Outcome.DISABLED


class Elsewhere:
    """Takes messages, and does not keep them in memory alone."""

    def publish(self, shard, message):
        raise AssertionError

    def close(self):
        pass


@pytest.mark.parametrize("kind", [SeededClient, WatchedClient])
def test_a_seeded_client_sends_nothing_elsewhere_unless_told_so(kind, tmp_path):
    path = tmp_path / "device.db"
    with pytest.raises(ParameterError, match="leaks_values=True"):
        kind(small_plan(), seed=1, publisher=Elsewhere(), state=path)
    assert not path.exists()
    told = kind(small_plan(), seed=1, publisher=Elsewhere(), state=path, leaks_values=True)
    assert told.record("colour", "red") is Outcome.ACCEPTED

    class Kept(MemoryPublisher):
        pass

    assert kind(small_plan(), seed=1, publisher=Kept()).record("colour", "red") == "accepted"


# No app in production can reach a seed.


def sources(client: Client) -> list[object]:
    """Whatever a client, or a part of it, draws from."""
    seen, found, parts = set(), [], [client]
    while parts:
        part = parts.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if hasattr(part, "bits") and hasattr(part, "words"):
            found.append(part)
        elif type(part).__module__.startswith("clientsdk"):
            names = [*getattr(part, "__dict__", {}), *getattr(type(part), "__slots__", ())]
            parts += [getattr(part, name) for name in names if hasattr(part, name)]
        elif isinstance(part, list | tuple | set | dict):
            parts += list(part.values() if isinstance(part, dict) else part)
    return found


def test_no_argument_setting_or_variable_is_about_randomness():
    names = [*inspect.signature(Client.__init__).parameters]
    names += [*inspect.signature(Settings).parameters, *VARIABLES]
    assert not [
        name
        for name, word in itertools.product(names, ("seed", "random", "source", "rng", "entropy"))
        if word in name.lower()
    ]


def test_a_client_draws_from_the_operating_system_whatever_it_is_given(monkeypatch, tmp_path):
    said = ["off", "off", "on", "3", "300", "off", "200000", "1d", "1", "error"]
    for name, text in zip(VARIABLES, said, strict=True):
        monkeypatch.setenv(name, text)
    for name in ("SEED", "SOURCE", "RANDOM", "TESTING"):
        monkeypatch.setenv(f"SOTTO_{name}", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    client = Client(
        plan(metric("colour")),
        state=tmp_path / "device.db",
        publisher=MemoryPublisher(),
        clock=FakeClock(START),
        ceilings=Ceilings(12_000_000, 640_000_000),
        background=False,
        quota=Quota(age=DAY / 1000),
        settings=Settings.from_environment(log=None),
    )
    client.give_consent()
    client.record("colour", "a")
    found = sources(client)
    assert found
    assert {type(each) for each in found} == {SystemSource}
    assert {type(each) for each in sources(SeededClient(small_plan(), seed=1))} != {SystemSource}


@pytest.mark.real_randomness
def test_what_draws_from_seeds_is_not_even_imported_by_an_app():
    code = (
        "import sys, clientsdk, clientsdk.typed, clientsdk.preview, clientsdk.settings\n"
        "from clientsdk import EmbeddedLogPublisher\n"
        "assert not {'clientsdk.testing', 'mechanisms.testing', 'random'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_values_that_a_plan_clips_or_counts_as_another_are_flagged():
    client = WatchedClient(
        plan(metric("colour", "every", 2), number("size", kind="every", limit=2))
    )
    inside = [("colour", "a"), ("colour", "other"), ("size", 0), ("size", 10.0), ("size", None)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, value in inside:
            client.record(name, value)
    assert client.outside == []
    with pytest.warns(OutsideDomainWarning, match="metric 'colour': a value .* counts as 'other'"):
        client.record("colour", "secret")
    with pytest.warns(OutsideDomainWarning, match=r"outside \[0, 10\] is clipped") as caught:
        client.record("size", 10.5)
    outside = [(each.metric, each.value) for each in client.outside]
    assert outside == [("colour", "secret"), ("size", 10.5)]
    # The warning points to the call that recorded it; the value itself is in no message.
    assert caught[0].filename == __file__
    assert "10.5" not in str(caught[0].message)
