"""Marked values of every type, through every outcome and failure: no mark is anywhere after it.

Looked at are the log at its most talkative, with tracebacks and their locals; standard output and
error; every error and result handed out; the state file, its log, index and whatever lies beside
them; and every byte that a publisher was given.
"""

from __future__ import annotations

import base64
import logging
import struct
import subprocess
import threading
import traceback
from contextlib import suppress
from itertools import cycle

import pytest
from device_plans import HOUR, START, WEEK
from plan_texts import plan_head
from scripts import ROOT, run
from slow_publishers import Failing

from clientsdk import Client, EmbeddedLogPublisher, MemoryPublisher, Outcome, Settings
from clientsdk.testing import FakeClock
from sotto.errors import PublishError, StoreError
from sotto.plan.compile import parse_plan

#: The folders of all code of ours that runs in an app.
OURS = tuple(str(ROOT / package) for package in ("clientsdk", "sotto", "mechanisms"))
MARK = "Qzx7-marked-value"
FIGURE = 7.123456789012345
PLAN = (
    plan_head("planted", (900, 1800), expires="2036-12-31")
    + """\
  category: &category
    type: category
    domain: [a, b]
    outside: other
    window: 28d
    repeat: {every: 2}
    ladder: &ladder [{epsilon: 0.5}, {epsilon: 2, after: 1d}]
  once: {<<: *category, repeat: {once: reservoir}, ladder: [{epsilon: 1, after: 7d}]}
  always: {<<: *category, repeat: {constant: true}, ladder: [{epsilon: 1}, {epsilon: 4}]}
  grade: {type: ordinal, values: [bad, good], window: 28d, ladder: *ladder}
  point: {type: ordinal, range: [0, 10], points: 5, outside: clip, window: 28d, ladder: *ladder}
  word: {type: string, bits: 128, hashes: 2, cohorts: 16, window: 28d, ladder: *ladder}
  size: {type: number, range: [0, 10], outside: clip, window: 28d, ladder: *ladder}
  bits:
    {type: number, range: [0, 10], mechanism: {bit_aware: sampled, bits: 10}, outside: clip,
     window: 28d, ladder: *ladder}
  place: {type: vector, range: [0, 10], dimensions: 2, outside: clip, window: 28d, ladder: *ladder}
  app: {type: top_item, domain: [map, list], outside: other, clip: 9, window: 28d, ladder: *ladder}
"""
)
TEXTS = ("category", "once", "always", "grade", "word", "app")
NUMBERS = ("point", "size", "bits")
OF_WRONG_TYPE = (
    *((name, MARK.encode()) for name in TEXTS),
    *((name, [FIGURE, MARK]) for name in TEXTS),
    *((name, MARK) for name in NUMBERS),
    ("place", (FIGURE,)),
    ("place", {MARK: FIGURE}),
    (MARK, "a"),
    (MARK, FIGURE),
)


def forms(text: str, figure: float) -> list[bytes]:
    """The forms that a mark may have in bytes."""
    written = [text, text.encode().hex(), repr(figure)[:12], repr(figure / 10)[:12]]
    packed = [struct.pack(f"{order}d", value) for value in (figure, figure / 10) for order in "<>"]
    return [
        *(each.encode(coding) for each in written for coding in ("utf-8", "utf-16-le")),
        base64.b64encode(text.encode())[:-4],
        *packed,
        *(each.hex().encode() for each in packed),
    ]


class World:
    """A device, and everything that is ever handed out by it."""

    def __init__(self, folder, publisher, **options):
        self.folder, self.clock = folder, FakeClock(START)
        self.said: list[str] = []
        options.setdefault("background", False)
        self.client = Client(
            parse_plan(PLAN).compile(),
            state=folder / "device.db",
            publisher=publisher,
            clock=self.clock,
            **options,
        )

    def note(self, work, *arguments):
        """Keep what a call returns or raises, with all frames below this one and their locals."""
        try:
            result = work(*arguments)
        except Exception as error:
            below = error.__traceback__.tb_next
            told = traceback.TracebackException(type(error), error, below, capture_locals=True)
            self.said += [repr(error), *told.format()]
            return error
        error = getattr(result, "error", None)
        self.said += [repr(result), str(result), repr(getattr(error, "__context__", None))]
        return result

    def record_all(self):
        """Record every marked value; return the outcomes."""
        outcomes = [self.note(self.client.record, name, MARK) for name in TEXTS]
        outcomes += [self.note(self.client.record, name, FIGURE) for name in NUMBERS]
        outcomes.append(self.note(self.client.record, "place", [FIGURE, FIGURE]))
        for name, value in OF_WRONG_TYPE:
            error = self.note(self.client.record, name, value)
            assert isinstance(error, Exception)
        return set(outcomes)

    def send(self, hours):
        """Move on and send, in every way there is."""
        self.clock.advance(hours=hours)
        self.note(self.client.flush)
        self.note(self.client.flush, 5.0)

    def look(self):
        """Return what a talkative app would say of its client."""
        client = self.client
        self.said += [repr(client), repr(client.plan), repr(client.settings)]
        self.note(client.ledger)
        self.note(client.preview)
        self.note(client.next_due)

    def files(self):
        """Read all there is by another process: this one would lose its locks."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return subprocess.run(["cat", *found], check=True, capture_output=True).stdout


def executing(statement):
    return lambda world: world.client._store.database.connection.execute(statement)


def corrupted(world):
    path = world.folder / "device.db"
    # By another process, for the sake of this one's locks.
    command = f"printf {'x' * 3000} | dd of={path} conv=notrunc bs=1 seek=200"
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)


FAILURES = {
    "none": (lambda world: None, {Outcome.PERIOD_FULL, Outcome.ACCEPTED}),
    "closed": (lambda world: world.client.close(), {Outcome.CLOSED}),
    "withdrawn": (lambda world: world.client.withdraw_consent(), {Outcome.NO_CONSENT}),
    "expired": (lambda world: world.clock.advance(days=1600 * 7), {Outcome.EXPIRED}),
    "read only": (executing("PRAGMA query_only = ON"), None),
    # SQLite takes the pages that there are for the least.
    "disk full": (executing("PRAGMA max_page_count = 1"), None),
    "corrupted": (corrupted, None),
    "table gone": (executing("DROP TABLE chain"), None),
}
ERRORS = {
    "taken": [],
    "refused": [PublishError("the broker is down")] * 99,
    "unexpected": [OSError(28, "No space left on device")] * 99,
}


@pytest.fixture
def talk(monkeypatch):
    """Everything that is logged, at every level, with what tracebacks can show."""
    told: list[str] = []
    ours: set[str] = set()

    class Talkative(logging.Handler):
        def emit(self, record):
            if record.pathname.startswith(OURS):
                ours.add(record.name)
            told.append(self.format(record) + repr(vars(record)))
            told.extend(map(repr, record.args or ()))

    handler, root = Talkative(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    logging.getLogger("clientsdk").setLevel(logging.DEBUG)
    monkeypatch.setattr(threading, "excepthook", lambda each: told.append(repr(each)))
    yield told
    assert ours <= {"clientsdk"}
    root.removeHandler(handler)
    root.setLevel(level)
    logging.getLogger("clientsdk").setLevel(logging.NOTSET)


def assert_clean(*places: bytes | str) -> None:
    for place in places:
        content = place if isinstance(place, bytes) else place.encode("utf-8", "replace")
        for form in forms(MARK, FIGURE):
            assert form not in content, form


_LOGGERS = """
import logging, pkgutil, clientsdk
for module in pkgutil.iter_modules(clientsdk.__path__, "clientsdk."):
    __import__(module.name)
client = device(metric("colour"))
client._store.database.connection.execute("PRAGMA query_only = ON")
assert client.record("colour", "a") is Outcome.STORE_FULL
for name, logger in logging.root.manager.loggerDict.items():
    if name.partition(".")[0] in ("clientsdk", "sotto", "mechanisms"):
        print(name, logger.handlers, logger.filters, logger.level, logger.propagate)
"""


@pytest.mark.real_randomness
def test_one_logger_tells_all_and_has_no_handlers(tmp_path):
    assert run(_LOGGERS, tmp_path / "device.db").splitlines() == ["clientsdk [] [] 0 True"]


@pytest.mark.real_randomness
@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "error"),
    [*zip(FAILURES, cycle(ERRORS), strict=False), ("none", "refused"), ("none", "unexpected")],
)
def test_no_value_is_anywhere(tmp_path, talk, capfd, failure, error):
    publisher = Failing(*ERRORS[error])
    world = World(tmp_path, publisher)
    assert world.record_all() == {Outcome.NO_CONSENT}
    world.client.give_consent()
    assert world.record_all() == {Outcome.ACCEPTED}
    world.look()
    world.send(hours=3)
    break_it, outcomes = FAILURES[failure]
    break_it(world)
    found = world.record_all()
    assert outcomes is None or found == outcomes
    world.look()
    world.send(hours=7 * 24)
    world.record_all()
    with suppress(StoreError):
        world.send(hours=7 * 24)
    world.note(world.client.close)
    assert publisher.messages
    given = [message for _, message in publisher.messages]
    assert_clean(world.files(), *world.said, *talk, *capfd.readouterr(), *given)


@pytest.mark.parametrize(
    ("settings", "used", "outcome"),
    [
        (Settings(disabled=True), 0, Outcome.DISABLED),
        (Settings(ceiling_period=0.001), 0, Outcome.OVER_BUDGET),
        (Settings(), 1 << 40, Outcome.STORE_FULL),
    ],
    ids=["disabled", "over budget", "quota"],
)
def test_nor_where_it_is_refused(tmp_path, talk, capfd, monkeypatch, settings, used, outcome):
    monkeypatch.setattr("clientsdk.store.outbox._size", lambda connection: used)
    world = World(tmp_path, MemoryPublisher(), settings=settings)
    world.note(world.client.give_consent)
    assert world.record_all() == {outcome}
    world.look()
    world.send(hours=200)
    world.note(world.client.close)
    assert_clean(world.files(), *world.said, *talk, *capfd.readouterr())


def test_nor_in_the_embedded_log_nor_from_the_thread_that_sends(tmp_path, talk, capfd):
    publisher = EmbeddedLogPublisher(tmp_path / "log")
    world = World(tmp_path, publisher)
    world.client.give_consent()
    world.record_all()
    world.send(hours=3)
    publisher.close()
    assert (tmp_path / "log").is_dir()
    world.note(world.client.close)
    again = World(tmp_path, Failing(*[ValueError("something else")] * 99), background=True)
    again.clock.now = START + WEEK + HOUR
    again.record_all()
    again.note(again.client.flush)
    again.note(again.client.close)
    assert_clean(again.files(), *world.said, *again.said, *talk, *capfd.readouterr())


def test_a_value_that_is_told_would_be_found(tmp_path):
    for text in (MARK, f"wrong: {FIGURE}", f"wrong: {FIGURE / 10}", MARK.encode().hex()):
        with pytest.raises(AssertionError):
            assert_clean(f"some text, {text}, and more")
    with pytest.raises(AssertionError):
        assert_clean(b"\0\1" + struct.pack("<d", FIGURE / 10) + b"\2")
