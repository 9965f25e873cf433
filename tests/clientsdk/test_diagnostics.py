"""Whatever is raised in a recording, and wherever: no frame of its traceback keeps the value."""

from __future__ import annotations

import math
import os
import sys
from contextlib import contextmanager
from itertools import count, cycle, dropwhile

import pytest
from device_plans import CONSTANT, START, WEEK, items, metric, number, plan, string, threadless
from scripts import ROOT

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome, draws
from clientsdk.testing import FakeClock, SeededClient
from clientsdk.typed import Metric
from sotto.errors import ValueTypeError

MARK = "Qzx7-marked-value"
FIGURE = 7.123456789012345
#: Enough symbols for the number of one to be told from any other number.
WORDS = [f"w{each}" for each in range(1000)]
MARKED = WORDS[777]
OURS = tuple(str(ROOT / package) for package in ("clientsdk", "sotto", "mechanisms"))


class Word(str):
    """A text whose type has to be proven."""

    __slots__ = ()


def many(name, kind="first", limit=1, **changes):
    mechanism = {"name": "grr", "domain_size": 1001}
    return metric(name, kind, limit, domain=WORDS, mechanism=mechanism, **changes)


def vector():
    place = metric("place", "every", 9, range=[0.0, 10.0], type="vector", outside="clip")
    del place["domain"]
    return {
        **place,
        "mechanism": {"name": "sampled_hybrid", "dimensions": 2, "points": 9, "sampled": 1},
    }


def _items():
    mechanism = {"name": "permute_and_flip", "domain_size": 1001, "clip": 1000}
    return {**items(), "domain": WORDS, "mechanism": mechanism}


PLAN = plan(
    many("once"),
    many("many", "every", 9),
    many("kept", "reservoir"),
    many("always", "constant", ladder=CONSTANT),
    string("word", kind="every", limit=9),
    number("size", kind="every", limit=9),
    vector(),
    _items(),
    ceilings={"period": 10**12, "lifetime": 10**12},
)
#: Metric, value, and how often something was recorded before.
RECORDINGS = [
    ("once", MARKED, 0),
    ("once", Word(MARKED), 2),
    ("many", Word(MARKED), 0),
    ("many", MARKED, 1),
    ("kept", MARKED, 0),
    ("kept", MARKED, 1),
    ("always", MARKED, 0),
    ("word", MARK, 1),
    ("size", FIGURE, 1),
    ("place", [FIGURE, FIGURE], 1),
    ("app", MARKED, 0),
    ("app", MARKED, 1),
]
ORDINARY = {"word": "w", "size": 1.0, "place": (1.0, 2.0)}


def is_planted(found, depth=3):
    if isinstance(found, str):
        return MARK in found or found == MARKED
    if isinstance(found, bytes):
        return MARK.encode() in found
    if isinstance(found, float):
        return math.isclose(found, FIGURE) or math.isclose(found, FIGURE / 10)
    if isinstance(found, int):
        return found == 777
    if isinstance(found, list | tuple) and depth and found is not PLAN.metrics:
        return any(is_planted(each, depth - 1) for each in found if found is not WORDS)
    return False


def frames_of(error):
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def frames(error):
    """All frames from the recording on, of an exception and of whatever it is linked to."""
    links = [error]
    for each in links:
        links += [link for link in (each.__cause__, each.__context__) if link and link not in links]
    record = Client.record.__code__
    for each in links:
        yield from dropwhile(lambda frame: frame.f_code is not record, frames_of(each))


def assert_nothing_is_kept(error):
    assert not is_planted(str(error))
    seen = list(frames(error))
    assert seen
    for frame in seen:
        kept = {name: each for name, each in frame.f_locals.items() if is_planted(each)}
        assert kept == {}, frame.f_code
    return len(seen)


def fresh(name, before, state=None):
    client = SeededClient(PLAN, seed=1, clock=FakeClock(START), state=state)
    for _ in range(before):
        client.record(name, ORDINARY.get(name, "w1"))
    return client


def interrupted(client, name, value, instant, error):
    """Record, and raise when so many lines were run; return what came out, None if too few are."""
    left = instant
    record = Client.record.__code__

    def line(frame, event, argument):
        nonlocal left
        if event == "line":
            # A function has no control over what runs before the first line of its body.
            inside = frame.f_code is not record or frame.f_lineno > first
            left -= inside
            if left == 0 and inside:
                sys.settrace(None)
                raise error
        return line

    def call(frame, event, argument):
        code = frame.f_code
        # An error that is raised in a finalizer goes nowhere.
        return line if code.co_filename.startswith(OURS) and code.co_name != "__del__" else None

    first = min(each for *_, each in record.co_lines() if each and each > record.co_firstlineno)
    traced = sys.gettrace()
    sys.settrace(call)
    try:
        client.record(name, value)
    except type(error) as caught:
        return caught
    finally:
        sys.settrace(traced)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "before"), RECORDINGS, ids=lambda each: str(each).replace(" ", "")
)
def test_an_interrupt_at_any_line_of_a_recording_leaves_no_value_behind(name, value, before):
    errors = cycle([KeyboardInterrupt, MemoryError, SystemExit])
    deepest = 0
    for instant in count(1):
        client = fresh(name, before)
        error = interrupted(client, name, value, instant, next(errors)())
        if error is None:
            break
        deepest = max(deepest, assert_nothing_is_kept(error))
        assert client.record(name, ORDINARY.get(name, "w1")) is not Outcome.STORE_FULL
    # Encoding, coins, drawing and storing, or the proof of the type alone.
    assert instant > (60 if before != 2 else 5)
    assert deepest > (4 if before != 2 else 3)


def _fails_with(error):
    def fail(*arguments, **options):
        raise error

    return fail


STAGES = {
    "encode": "sotto.plan.metric.CompiledMetric.encode",
    "coins": "clientsdk.draws.identifier",
    "draw": "mechanisms.base.Mechanism.draw",
    "store": "clientsdk.store.outbox.Outbox.add",
    "book": "clientsdk.store.accounts.Accounts.reserve",
    "warn": "clientsdk.diagnostics.warn",
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
@pytest.mark.parametrize("stage", STAGES)
def test_nor_does_an_error_at_any_stage(monkeypatch, tmp_path, stage, error):
    client = fresh("word", 1, state=tmp_path / "device.db")
    before = client.ledger()
    with monkeypatch.context() as patched:
        patched.setattr(STAGES[stage], _fails_with(error("raised")))
        if stage == "warn":
            patched.setattr("clientsdk.store.outbox._size", lambda connection: 1 << 40)
            client._store.outbox.room = 0
        with pytest.raises(error, match="raised") as caught:
            client.record("word", MARK)
    assert_nothing_is_kept(caught.value)
    assert client.ledger() == before
    client._store.outbox.room = 0
    client._store.refusals.clear()
    assert client.record("word", "w") is Outcome.ACCEPTED


class Typed(Metric[str]):
    """As ``sotto plan generate`` writes one."""

    __slots__ = ()

    name = "word"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueTypeError])
def test_nor_does_the_frame_of_a_metric_with_typed_values(monkeypatch, error):
    client = fresh("word", 0)
    monkeypatch.setattr(client._recorder, "record", _fails_with(error("raised")))
    with pytest.raises(error, match="raised") as caught:
        Typed(client).record(MARK)
    ours = [frame for frame in frames_of(caught.value) if frame.f_code.co_filename.startswith(OURS)]
    assert Metric.record.__code__ in [frame.f_code for frame in ours]
    assert not any(is_planted(each) for frame in ours for each in frame.f_locals.values())
    assert caught.value.__context__ is None


def test_what_is_counted_is_in_no_frame_of_an_interrupted_flush(monkeypatch):
    client = fresh("app", 0)
    for _ in range(777):
        client.record("app", "w5")
    client.clock.advance(days=7)
    mechanism = type(PLAN.metric("app").mechanism)
    draw, seen = mechanism.draw, []

    def interrupting(self, symbol, *given):
        seen.append(symbol[5])
        raise KeyboardInterrupt

    monkeypatch.setattr(mechanism, "draw", interrupting)
    with pytest.raises(KeyboardInterrupt) as caught:
        client.flush()
    assert seen == [777]
    below = list(frames_of(caught.value))
    assert below[-1].f_code is interrupting.__code__
    assert not any(is_planted(each) for frame in below[1:] for each in frame.f_locals.values())
    monkeypatch.setattr(mechanism, "draw", draw)
    client.flush()
    assert [each.metric for each in client.ledger().pending] == ["trial/app"]


# Without randomness.


@contextmanager
def no_randomness():
    """The operating system gives no random bytes meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (os, draws):
            patched.setattr(module, "urandom", _fails_with(OSError(5, "no entropy")))
        yield


@pytest.mark.parametrize("state", [None, "device.db"])
@pytest.mark.parametrize(("name", "value", "before"), RECORDINGS[2:], ids=str)
def test_without_randomness_values_are_refused_and_cost_nothing(
    tmp_path, caplog, state, name, value, before
):
    path = NO_LIFETIME_BOUND if state is None else tmp_path / state
    with threadless(PLAN, state=path) as client:
        client.give_consent()
        for _ in range(before):
            assert client.record(name, ORDINARY.get(name, "w1")) is Outcome.ACCEPTED
        ledger = client.ledger()
        with no_randomness():
            refused = [client.record(name, value) for _ in range(2)]
        # An item that is only counted draws nothing.
        counted = name == "app" and before
        assert refused == [Outcome.ACCEPTED if counted else Outcome.STORE_FULL] * 2
        assert client.ledger() == ledger
        if not counted:
            told = [record.getMessage() for record in caplog.records]
            assert sum("no entropy" in each for each in told) == 1
            assert not any(map(is_planted, told))
        assert client.record(name, ORDINARY.get(name, "w1")) is Outcome.ACCEPTED


def test_without_randomness_a_count_is_kept_until_it_can_be_drawn_from():
    clock, publisher = FakeClock(START), MemoryPublisher()
    with threadless(PLAN, publisher=publisher, clock=clock) as client:
        client.give_consent()
        assert client.record("app", "w1") is Outcome.ACCEPTED
        clock.now = START + 2 * WEEK
        with no_randomness():
            assert client.record("once", MARKED) is Outcome.STORE_FULL
            assert client.flush().sent == 0
        assert client.flush().sent == 1
