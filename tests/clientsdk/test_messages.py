"""Mistakes that a developer makes, and the whole of what each is answered.

``mistakes.txt`` has a row for each: its name, and the code that makes it; or a command alone.
``messages.txt`` has what is said of it (expected; got), and the remedy that ends it; the remedy is
"-" where what is expected says it. Lines of one message are joined by `` / ``.
``python tests/clientsdk/test_messages.py`` prints the rows of ``messages.txt`` as they are now.
"""

from __future__ import annotations

import enum
import gc
import io
import os
import shlex
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import pytest
from local_server import Answer
from plan_texts import plan_head
from publishing import Collector

import clientsdk
import sotto_cli
from clientsdk import NO_LIFETIME_BOUND, Client, HttpPublisher, MemoryPublisher, Settings
from clientsdk.testing import small_plan
from mechanisms.audit.claims import LIBRARY
from sotto.plan.compile import parse_plan
from sotto.wire.format import Row, encode_message

FOLDER = Path(__file__).parent
#: Lists in messages that grow with what they list.
LISTS = {
    "<settings>": [each.name for each in fields(Settings)],
    "<mechanisms>": [each.name for each in LIBRARY],
}
PLAN = (
    plan_head("p", (6, 900), collector="a.example", expires="2036-12-31")
    + """\
  theme:   {type: category, domain: [dark], outside: other, window: 28d, ladder: &l [{epsilon: 1}]}
  crash:   {type: boolean, window: 28d, ladder: *l}
  startup: {type: number, range: [0, 5000], unit: ms, outside: clip, window: 7d, ladder: *l}
  gap:     {type: number, range: [0, 9], missing: true, outside: clip, window: 7d, ladder: *l}
  size:    {type: ordinal, values: [s, m, l], window: 7d, ladder: *l}
  place:   {type: vector, dimensions: 2, range: [0, 1], outside: clip, window: 7d, ladder: *l}
"""
)
COMPILED = parse_plan(PLAN).compile()
MEASURED = """\
  exports:  {type: ordinal, edges: [0, 1, 5], measure: {count: export}, stored: true, window: 7d, ladder: *l}
  checkout: {type: ordinal, measure: {furthest: [cart, paid]}, stored: true, window: 7d, ladder: *l}
"""  # noqa: E501


class Colour(enum.Enum):
    DARK = "dark"


Colour.__module__ = "app"


def client(plan: object = COMPILED, **changes: object) -> Client:
    arguments = {
        "state": NO_LIFETIME_BOUND,
        "publisher": MemoryPublisher(),
        "background": False,
        "settings": Settings(),
        **changes,
    }
    return Client(plan, **arguments)  # type: ignore[arg-type]


def record(metric: object, value: object) -> object:
    return client().record(metric, value)  # type: ignore[arg-type]


def measuring() -> Client:
    return client(parse_plan(PLAN.replace("period: 6", "period: 9") + MEASURED).compile())


def declared(before: str, after: str) -> object:
    """A plan whose measures are declared otherwise."""
    assert before in MEASURED
    return parse_plan(PLAN + MEASURED.replace(before, after, 1)).compile()


def written(before: str, after: str) -> object:
    assert before in PLAN
    return parse_plan(PLAN.replace(before, after, 1)).compile()


def refused(words: str, files: Mapping[str, str] | None = None) -> None:
    """A command, beside files with this content, that is refused before anything is done."""
    files = files or {}
    for name, content in files.items():
        Path(name).write_text(content)
    with redirect_stderr(io.StringIO()) as said, redirect_stdout(io.StringIO()) as printed:
        assert sotto_cli.main(shlex.split(words)[1:]) == 2
    assert printed.getvalue() == ""
    assert {name: Path(name).read_text() for name in os.listdir()} == files
    *before, last = said.getvalue().splitlines()
    # A warning may come before, and a command's usage, whose further lines are indented.
    assert all(line.startswith(("sotto: warning: ", "usage: ", "    ")) for line in before)
    assert last.startswith("sotto: error: ")
    raise ValueError(last.removeprefix("sotto: error: "))


def command(words: str) -> None:
    """A command that is refused beside the file of :data:`PLAN`."""
    refused(f"sotto {words}", {"plan.yaml": PLAN})


def strict_check(plan: str) -> None:
    """A plan that a strict check refuses for what it warns of last."""
    Path("plan.yaml").write_text(plan)
    with redirect_stderr(io.StringIO()) as said:
        assert sotto_cli.main(["plan", "check", "plan.yaml", "--strict"]) == 1
    raise ValueError(said.getvalue().splitlines()[-1])


def warned(mistake: Callable[[], object]) -> None:
    """A mistake that is answered by a warning: the last one."""
    with patch("clientsdk.diagnostics.warn") as warn:
        mistake()
    _, text, *details = warn.call_args.args
    raise ValueError(text % tuple(details) if details else text)


def recorded_in_del() -> None:
    class Holder:
        def __del__(self) -> None:
            self.outcome.append(self.client.record("crash", True))

    holder = Holder()
    holder.client, holder.outcome, holder.itself = client(state="device.db"), [], holder
    holder.client.give_consent()
    outcome = holder.outcome
    gc.disable()
    del holder
    # A client that has just looked at its file need not look again, and records.
    with patch("clientsdk.store.database.monotonic", lambda: time.monotonic() + 60):
        gc.collect()
    gc.enable()
    assert outcome == ["store_full"]


def agreed_without_descriptors() -> None:
    error = OSError(24, "Too many open files", "/home/somebody/parts.py")
    with patch.object(Client, "_open", side_effect=error):
        made = Client.open(COMPILED, state="device.db", publisher=MemoryPublisher())
        assert not made.give_consent()


def hundred_clients() -> None:
    for _ in range(100):
        with client(state="device.db") as one:
            one.give_consent()


def posted_to_a_web_server() -> None:
    with Collector() as server:
        server.answer = Answer(200, body=b"ok")
        message = encode_message(bytes(32), 3, [(0, [Row(0, b"p" * 16, b"c" * 16, 0, b"\1")])])
        with closing(HttpPublisher(server.url)) as publisher:
            publisher.publish(3, message)


def a_folder_that_is_gone() -> None:
    os.mkdir("gone")
    with chdir("gone"):
        os.rmdir(os.getcwd())
        client(state="device.db")


def other_database() -> None:
    with closing(sqlite3.connect("other.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
    client(state="other.db")


def another_collector() -> None:
    with client(state="device.db") as first:
        first.give_consent()
    client(small_plan(), state="device.db")


def rows(name: str) -> list[list[str]]:
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    return [line.split(" | ") for line in lines if not line.startswith("# ")]


MISTAKES = {
    cause: code[0] if code else f"refused({cause!r})" for cause, *code in rows("mistakes.txt")
}
#: Modules that the code of mistakes names.
MODULES = """
    asyncio clientsdk.openfeature clientsdk.otel clientsdk.sending.sender clientsdk.testing
    clientsdk.typed copy datetime decimal json numpy opentelemetry.metrics pandas pickle
    sotto.log.writer
"""
NAMES = {name: getattr(clientsdk, name) for name in clientsdk.__all__} | {
    name.partition(".")[0]: __import__(name) for name in MODULES.split()
}


def end(*_: object) -> None:
    # The loop of a server drops what a handler raises, and ends by this signal.
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        signal.raise_signal(signal.SIGTERM)
    pytest.fail("nothing is said: does a server run?")


def said_of(cause: str) -> str:
    signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    try:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the table has what it says
            eval(MISTAKES[cause], NAMES | globals())  # noqa: S307 - it is a file of this folder
    finally:
        signal.alarm(0)
    return str(caught.value).replace("\n", " / ")


@pytest.mark.parametrize(
    ("cause", "message", "remedy"), rows("messages.txt"), ids=lambda text: text[:40]
)
def test_what_is_said(cause, message, remedy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for listed, names in LISTS.items():
        message = message.replace(listed, ", ".join(names))
    expected = message + remedy.removeprefix("-")
    assert said_of(cause) == expected, "if that is meant: a row of messages.txt"


def test_every_mistake_is_in_the_table():
    assert [cause for cause, *_ in rows("messages.txt")] == [*MISTAKES]


@pytest.mark.parametrize("path", ["", "/v1/reports", "/v1/reports/"])
def test_the_path_of_a_request_may_be_in_the_url(path):
    assert HttpPublisher(f"https://a.example/behind{path}")._collector.path == "/behind"


if __name__ == "__main__":
    for cause in MISTAKES:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            print(f"{cause} | {said_of(cause)} | -")
