"""Signals, finalizers and hooks that come in the middle of something."""

from __future__ import annotations

import fcntl
import itertools
import sys
import threading
from contextlib import contextmanager, suppress

import pytest
from device_plans import START, VAST, metric, plan

from clientsdk import Consent, Outcome, Settings
from clientsdk.store.database import READ, Transaction
from clientsdk.testing import FakeClock, SeededClient


def device(path, **options):
    compiled = plan(metric("colour", "every", 1000, ladder=[(500_000, 0)]), ceilings=VAST)
    return SeededClient(compiled, seed=1, state=path, clock=FakeClock(START), **options)


@contextmanager
def watched_by(how, function):
    """Let a function be called as a debugger's ("trace") or a profiler's is."""
    before = getattr(sys, f"get{how}")()
    getattr(sys, f"set{how}")(function)
    try:
        yield
    finally:
        getattr(sys, f"set{how}")(before)


USES = ("database.py",)
IN_A_TRANSACTION = ("__enter__", "hold", "begin", "_start", "__exit__", "commit", "release")


@pytest.mark.parametrize("name", IN_A_TRANSACTION)
def test_an_interrupt_leaves_nothing_locked(path, name):
    """It arrives at the first instruction of a function that opens or ends a transaction."""
    client = device(path)
    client.record("colour", "a")

    def interrupt(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_name == name and code.co_filename.endswith(USES):
            sys.settrace(None)
            raise KeyboardInterrupt

    with watched_by("trace", interrupt), pytest.raises(KeyboardInterrupt):
        client.record("colour", "a")
    outcomes = [client.record("colour", "a")]
    other = threading.Thread(target=lambda: outcomes.append(client.record("colour", "a")))
    other.start()
    other.join(timeout=300)
    with device(path) as second:
        outcomes.append(second.record("colour", "a"))
    assert outcomes == [Outcome.ACCEPTED] * 3


def test_an_interrupt_while_a_client_is_made_stays_one(path):
    """It arrives when a transaction has been opened, and before what is to be done in it."""

    def interrupt(frame, event, argument):
        if frame.f_code is Transaction.__enter__.__code__:
            if event == "return":
                sys.settrace(None)
                raise KeyboardInterrupt
            return interrupt
        return None

    with watched_by("trace", interrupt), pytest.raises(KeyboardInterrupt):
        device(path)
    assert device(path).record("colour", "a") is Outcome.ACCEPTED


class Interrupted:
    """A connection that an interrupt reaches when it has just been told to wait for no disk."""

    def __init__(self, connection):
        self.connection = connection

    def execute(self, statement):
        self.connection.execute(statement)
        assert statement == "PRAGMA synchronous = NORMAL"
        raise KeyboardInterrupt

    def __getattr__(self, name):
        return getattr(self.connection, name)


def test_an_interrupt_leaves_no_commit_less_durable_than_it_says(path):
    client = device(path)
    database = client._store.database
    connection, database.connection = database.connection, Interrupted(database.connection)
    with pytest.raises(KeyboardInterrupt):
        client.record("colour", "a")
    database.connection = connection
    seen = []
    connection.set_trace_callback(seen.append)
    client.withdraw_consent()
    assert "PRAGMA synchronous = FULL" in seen[: seen.index("COMMIT")]


def test_an_interrupt_leaves_no_guard_locked(path, monkeypatch):
    client = device(path)
    flock = fcntl.flock

    def interrupted(descriptor, operation):
        if operation == fcntl.LOCK_UN:
            raise KeyboardInterrupt
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.renew_consent()
    monkeypatch.undo()
    assert client.withdraw_consent()


# A file whose opening was interrupted is closed by the collector, and Hold.__del__ interrupted too.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interrupt_at_any_instant_of_a_flush_keeps_nobody_from_flushing(path, step):
    """It arrives where a function of Python begins, and where one of C returns."""
    client = device(path)
    left = 0

    def interrupt(frame, event, argument):
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    for instant in itertools.count(step=step):
        client.record("colour", "a")
        client.clock.advance(hours=3)
        left = instant
        with suppress(KeyboardInterrupt), watched_by("profile", interrupt):
            client.flush()
        if left >= 0:
            break
        assert client.flush().error is None
        errors = []
        other = threading.Thread(target=lambda into=errors: into.append(client.flush().error))
        other.daemon = True
        other.start()
        other.join(timeout=300)
        assert errors == [None], instant
    assert instant > 100


@pytest.mark.parametrize(
    ("use", "function"),
    [("close", "remaining"), ("preview", "_charge"), ("withdraw_consent", "_withdraw_in_file")],
)
def test_an_interrupt_amid_a_transaction_stays_one(path, use, function):
    """Although the store that is closed then is still held by what was interrupted."""
    device(path).close()
    client = device(path, settings=Settings(disabled=use == "withdraw_consent"))

    def interrupt(frame, event, argument):
        caller = frame.f_back.f_code.co_name
        if event == "call" and frame.f_code is Transaction.__exit__.__code__ and caller == function:
            sys.setprofile(None)
            raise KeyboardInterrupt

    with watched_by("profile", interrupt), pytest.raises(KeyboardInterrupt):
        getattr(client, use)()
    client.close()
    with device(path) as other:
        assert other.consent is (Consent.WITHDRAWN if use == "withdraw_consent" else Consent.GIVEN)


def test_recording_while_the_same_thread_cleans_up(path, monkeypatch):
    client = device(path)
    inner = []
    connected = type(client._store.database).connected

    def interrupted(store):
        monkeypatch.undo()
        inner.append(client.record("colour", "a"))
        return connected(store)

    monkeypatch.setattr(type(client._store.database), "connected", interrupted)
    assert client._store.erasure.scrub(compact=False)
    assert inner == [Outcome.STORE_FULL]
    assert client.record("colour", "a") is Outcome.ACCEPTED


def test_a_store_that_another_thread_never_lets_go_of(path, monkeypatch):
    monkeypatch.setattr("clientsdk.store.schema.LOCK_PATIENCE", 0.05)
    client = device(path)
    held, done = threading.Event(), threading.Event()

    def hold():
        with client._store.transaction(READ):
            held.set()
            done.wait(300)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(300)
    assert client.record("colour", "a") is Outcome.STORE_FULL
    done.set()
    holder.join()
    assert client.record("colour", "a") is Outcome.ACCEPTED
