"""Mistakes that a developer makes, and the whole of what each is answered: ``messages.txt``.

Each row of that table has a cause, what is said of it (expected; got), and the remedy that ends it;
the remedy is "-" where what is expected says it. Lines of one message are joined by `` / ``.
``python tests/clientsdk/test_messages.py`` prints the rows as they are now.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import decimal
import enum
import gc
import io
import json
import os
import pickle
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import chdir, closing, redirect_stderr
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from opentelemetry.metrics import get_meter_provider
from plan_texts import plan_head
from publishing import Collector, refuse

import sotto_cli
from clientsdk import (
    NO_LIFETIME_BOUND,
    Client,
    CompiledPlan,
    EmbeddedLogPublisher,
    KafkaPublisher,
    MemoryPublisher,
    Quota,
    Settings,
    fetch_plan,
)
from clientsdk.openfeature import SottoFeatureProvider
from clientsdk.otel import SottoMeterProvider
from clientsdk.publishers.http import HttpPublisher
from clientsdk.sending.sender import _publish_errors_only
from clientsdk.testing import FakeClock, SeededClient, small_plan
from mechanisms.audit.claims import LIBRARY
from sotto.log.writer import LogWriter
from sotto.plan.compile import parse_plan
from sotto.wire.format import Row, encode_message

TABLE = Path(__file__).with_name("messages.txt")
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


def closed() -> Client:
    made = client()
    made.close()
    return made


def refused(kind: Callable[..., object], *values: object, **named: object) -> Callable[[], object]:
    return lambda: kind(*values, **named)


def opened(**changes: object) -> Callable[[], object]:
    return lambda: client(**changes).close()


def recorded(metric: object, value: object) -> Callable[[], object]:
    return lambda: client().record(metric, value)  # type: ignore[arg-type]


def measured(method: str, *values: object) -> Callable[[], object]:
    plan = parse_plan(PLAN.replace("period: 6", "period: 9") + MEASURED).compile()
    return lambda: getattr(client(plan), method)(*values)


def declared(before: str, after: str) -> Callable[[], object]:
    """A plan whose measures are declared otherwise."""
    assert before in MEASURED
    return lambda: parse_plan(PLAN + MEASURED.replace(before, after, 1)).compile()


def written(before: str, after: str) -> Callable[[], object]:
    assert before in PLAN
    return lambda: parse_plan(PLAN.replace(before, after, 1)).compile()


def commanded(words: str, plan: str = PLAN) -> Callable[[], object]:
    """A command of which the last line on standard error is what it says."""

    def run() -> None:
        Path("plan.yaml").write_text(plan)
        with redirect_stderr(io.StringIO()) as said:
            assert sotto_cli.main(words.split()) == (1 if "--strict" in words else 2)
        raise ValueError(said.getvalue().splitlines()[-1].removeprefix("sotto: error: "))

    return run


def warned(mistake: Callable[[], object]) -> Callable[[], object]:
    """A mistake that is answered by a warning: the last one."""

    def run() -> None:
        with patch("clientsdk.diagnostics.warn") as warn:
            mistake()
        _, text, *details = warn.call_args.args
        raise ValueError(text % tuple(details) if details else text)

    return run


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
        server.answer = refuse(200, content=b"ok")
        message = encode_message(bytes(32), 3, [(0, [Row(0, b"p" * 16, b"c" * 16, 0, b"\1")])])
        with closing(HttpPublisher(server.url)) as publisher:
            publisher.publish(3, message)
        server.shutdown()


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


def a_folder() -> None:
    os.mkdir("folder")
    client(state="folder")


#: Errors about a value name the type that came, never the value.
VALUES = {
    "1 for a boolean": recorded("crash", 1),
    "text for a boolean": recorded("crash", "yes"),
    "numpy's int for a boolean": recorded("crash", np.int64(1)),
    "None where none can be missing": recorded("crash", None),
    "text for a number": recorded("startup", "412"),
    "a bool for a number": recorded("startup", True),
    "a Decimal": recorded("startup", decimal.Decimal(3)),
    "a timedelta": recorded("startup", datetime.timedelta(seconds=1)),
    "pandas' Timedelta": recorded("startup", pd.Timedelta("1s")),
    "a column of numbers": recorded("startup", pd.Series([3.0])),
    "text where None may be": recorded("gap", "x"),
    "a member of an Enum": recorded("theme", Colour.DARK),
    "bytes for text": recorded("theme", b"dark"),
    "pandas' NA": recorded("theme", pd.NA),
    "a Decimal for text": recorded("theme", decimal.Decimal(3)),
    "a list of values": recorded("theme", ["dark"]),
    "a rank for an ordinal": recorded("size", 0),
    "a number for a vector": recorded("place", 5),
    "a vector of another length": recorded("place", [1, 2, 3]),
    "a vector with a hole": recorded("place", [None, 1]),
    "a matrix for a vector": recorded("place", np.zeros((1, 2))),
    "metric and value swapped": recorded("dark", "theme"),
    "a metric misspelt": recorded("them", "dark"),
    "a metric in capitals": recorded("THEME", "dark"),
    "no metric": recorded(None, "dark"),
    "a list for a metric": recorded(["theme"], "dark"),
    "a metric that is none": recorded("nothing alike", "dark"),
}
ARGUMENTS = {
    "a plan that is nowhere": opened(plan=Path("home") / "nowhere.json"),
    "a plan by its URL": opened(plan="https://a.example/plan.json"),
    "a plan as text": opened(plan=COMPILED.to_json().decode()),
    "a plan as a dict": opened(plan={"format": 2}),
    "a plan in YAML": opened(plan=PLAN.encode()),
    "a plan reformatted": lambda: client(
        json.dumps(json.loads(COMPILED.to_json()), indent=1).encode()
    ),
    "an empty document for a plan": opened(plan=b"{}"),
    "a plan from a text": lambda: CompiledPlan.from_json("{}"),  # type: ignore[arg-type]
    "no state": opened(state=None),
    "state in bytes": opened(state=b"device.db"),
    "state in memory, as SQLite says it": opened(state=":memory:"),
    "a constant in quotes": opened(state="NO_LIFETIME_BOUND"),
    "a path with a tilde": opened(state="~/device.db"),
    "a folder that is not there": opened(state=Path("home") / "device.db"),
    "a folder for a file": a_folder,
    "a folder that is gone": a_folder_that_is_gone,
    "a database of another app": other_database,
    "a file of another collector": another_collector,
    "no publisher": opened(publisher=None),
    "a publisher's class": opened(publisher=HttpPublisher),
    "a function for a publisher": opened(publisher=print),
    "a folder for a publisher": opened(publisher=Path("log")),
    "a publisher of one argument": refused(_publish_errors_only, lambda message: None, 3, b"m"),
    "a host for a publisher": opened(publisher="telemetry.example"),
    "a log of another host": opened(publisher="file://elsewhere/log"),
    "a URL of a log without a folder": opened(publisher="file:"),
    "a URL of a log at home": opened(publisher="file:~/log"),
    "a collector's URL as that of a log": opened(publisher="file:https://telemetry.example"),
    "a cluster with a password": opened(publisher="kafka://me:secret@broker:9092/reports-e1-p8"),
    "a cluster with a query": opened(publisher="kafka://broker:9092/reports-e1-p8?password=secret"),
    "a cluster without a topic": opened(publisher="kafka://broker:9092"),
    "plain HTTP": opened(publisher="http://telemetry.example"),
    "a URL with a password": refused(HttpPublisher, "https://me:secret@telemetry.example"),
    "a URL in bytes": refused(HttpPublisher, b"https://telemetry.example"),
    "a key with a blank": refused(HttpPublisher, "https://telemetry.example", key="a b"),
    "a time limit in milliseconds": refused(HttpPublisher, "https://a.example", timeout=10_000),
    "no certificates": refused(HttpPublisher, "https://a.example", context=False),
    "a log without a folder": refused(EmbeddedLogPublisher, None),
    "a log's URL for its folder": refused(EmbeddedLogPublisher, "file:log"),
    "a log's folder at home": refused(EmbeddedLogPublisher, Path("~", "log")),
    "a log that is a file": refused(LogWriter, __file__, "a"),
    "fsync as a switch": refused(EmbeddedLogPublisher, "log", fsync=True),
    "a topic without an epoch": refused(KafkaPublisher, "localhost:9092", "reports"),
    "a time limit too short": refused(KafkaPublisher, "a:9092", "reports-e1-p8", timeout=0.1),
    "a time limit that is none": refused(
        KafkaPublisher, "a:9092", "reports-e1-p8", timeout=float("nan")
    ),
    "a compression": refused(KafkaPublisher, "a:9092", "reports-e1-p8", compression="lz5"),
    "a broker without a port": refused(KafkaPublisher, "nowhere", "reports-e1-p8"),
    "brokers in a list": refused(KafkaPublisher, ["localhost:9092"], "reports-e1-p8"),
    "one ceiling": opened(ceilings=6),
    "ceilings in millionths": opened(ceilings=(6_000_000, 300_000_000)),
    "a ceiling of nothing": opened(ceilings=(0, 0)),
    "ceilings swapped": opened(ceilings=(60, 3)),
    "ceilings in text": opened(ceilings=("3", "60")),
    "a ceiling in millionths": refused(Settings, ceiling_period=3_000_000),
    "ceilings of the settings swapped": refused(Settings, ceiling_period=3, ceiling_lifetime=2),
    "a setting misspelt": refused(Settings, close_timout=1),
    "a switch in text": refused(Settings, disabled="false"),
    "a level in capitals": refused(Settings, log="DEBUG"),
    "a time limit below zero": refused(Settings, close_timeout=-1),
    "a close in milliseconds": refused(Settings, close_timeout=1000),
    "a quota in bytes": refused(Settings, quota=1 << 20),
    "a quota too small": refused(Quota, bytes=1000),
    "a quota in text": refused(Quota, bytes="10MB"),
    "an age in text": refused(Quota, age="30d"),
    "an age in milliseconds": refused(Quota, age=86_400_000),
    "settings in a dict": opened(settings={}),
    "an option misspelt": lambda: Client.open(
        COMPILED,
        state=NO_LIFETIME_BOUND,
        publisher=MemoryPublisher(),
        on_error="raise",
        backgroud=False,  # type: ignore[call-arg]
    ),
    "half a fingerprint": opened(expect="abc"),
    "a clock in milliseconds": opened(clock=lambda: time.time() * 1000),
    "a clock in nanoseconds": opened(clock=time.time_ns),
    "a clock of datetimes": opened(clock=datetime.datetime.now),
    "a time for a clock": opened(clock=5.0),
    "a clock that starts anywhere": opened(clock=time.monotonic),
    "segments that the plan has not": opened(segments={"os": "linux"}),
    "segments in a list": opened(segments=["os"]),
    "a flush in text": lambda: client().flush("5"),  # type: ignore[arg-type]
    "a flush in milliseconds": lambda: client().flush(10_000),
    "an aflush in text": lambda: asyncio.run(client().aflush("5")),  # type: ignore[arg-type]
    "a preview in milliseconds": lambda: client().preview(at=time.time() * 1000),
    "a preview without a time zone": lambda: client().preview(at=datetime.datetime(2026, 1, 1)),
    "groups in a text": lambda: client().withdraw_consent(groups="look"),
    "groups that the plan has not": lambda: client().give_consent(groups=["look"]),
    "agreed again, in text": lambda: client().give_consent(again="no"),  # type: ignore[arg-type]
    "an experiment that the plan has not": lambda: client().arm("onboarding"),
    "a flush of a closed client": lambda: closed().flush(),
    "a pickled client": lambda: pickle.dumps(client()),
    "a copied client": lambda: copy.copy(client()),
    "a pickled publisher": lambda: pickle.dumps(HttpPublisher("https://a.example")),
    "a fetched plan without a fingerprint": refused(
        fetch_plan, "https://a.example", "a", expect=""
    ),
    "a plan for a provider of meters": refused(SottoMeterProvider, "plan.json"),
    "a tee to a proxy": lambda: SottoMeterProvider(client(), also=get_meter_provider()),
    "a plan for a provider of flags": refused(SottoFeatureProvider, "plan.json"),
    "a seed with a fraction": refused(SeededClient, COMPILED, seed=1.5),
    "a clock moved by weeks": lambda: FakeClock().advance(weeks=1),
}
MEASURES = {
    "an event that nothing counts": measured("count", "exprt"),
    "a count in text": measured("count", "export", "2"),
    "a count of half": measured("count", "export", 0.5),
    "a bool for a count": measured("count", "export", True),
    "an event that is no text": measured("count", 7),
    "a metric for an event": measured("count", "exports"),
    "a measured metric recorded": measured("record", "exports", 3),
    "a step by its number": measured("reach", "checkout", 1),
    "a funnel that is none": measured("reach", "exports", "paid"),
    "a measure that is not said to be stored": declared("stored: true, ", ""),
    "a measure that is not known": declared("{count: export}", "{often: export}"),
    "two measures": declared("{count: export}", "{count: export, days: app}"),
    "an age without an end": declared("{count: export}", "{age: 7d}"),
    "edges that fall": declared("[0, 1, 5]", "[0, 5, 1]"),
    "a measure twice a period": declared("{count: export}", "{count: export}, repeat: {every: 2}"),
    "a funnel by brr": declared(
        "{furthest: [cart, paid]}", "{furthest: [cart, paid]}, mechanism: brr"
    ),
    "a maximum that is never missing": declared("{count: export}", "{max: load}"),
    "a count of a text": declared("edges: [0, 1, 5]", "values: [none, few, many]"),
    "the values of a metric": declared("{count: export}", "{sum: gap}"),
    "true values that are not measured": written(
        "{type: boolean,", "{type: boolean, stored: true,"
    ),
}
PLANS = {
    "an instrument of a text": written("theme:   {type", "theme:   {otel: drawn, type"),
    "a category without its attribute": written(
        "theme:   {type", "theme:   {otel: {instrument: drawn}, type"
    ),
    "a key misspelt": written("  startup: {type: number, range", "  startup: {type: number, rang"),
    "a key of another type": written("values: [s, m, l]", "domain: [s, m, l]"),
    "a key in capitals": written("owner: ", "Owner: "),
    "a key of a level": written("*l}", "[{epsilon: 1, delay: 1d}]}"),
    "a type misspelt": written("category", "categry"),
    "a mechanism misspelt": written("crash:   {", "crash:   {mechanism: gr, "),
    "one ceiling in a plan": written("{period: 6, lifetime: 900}", "6"),
    "a ladder of numbers": written("*l}", "[0.5, 1]}"),
    "a word for repeat": written("crash:   {", "crash:   {repeat: once, "),
    "a week for a duration": written("period: 7d", "period: 1w"),
    "a German decimal": written("28d, ladder: *l", "28d, ladder: [{epsilon: 0,5}]"),
    "a German date": written("2036-12-31", "31.12.2036"),
    "a version in text": written("version: 1", "version: '1'"),
    "numbers in a domain": written("[dark]", "[1]"),
    "a panel of a number": written("crash:   {", "crash:   {panel: 13, "),
    "no plan at all": lambda: parse_plan(""),
}
COMMANDS = {
    "a command misspelt": commanded("estmates"),
    "an action misspelt": commanded("plan chek plan.yaml"),
    "an option of a command misspelt": commanded("plan check plan.yaml --strct"),
    "an option of the release before": commanded("design plan.yaml --json"),
    "users below zero": commanded("design plan.yaml --users -5"),
    "a metric misspelt in a command": commanded("design plan.yaml --metric thme"),
    "a mechanism misspelt in a command": commanded("audit --mechanism granu --no-attack"),
    "a value with a blank at its end": commanded(
        "plan check plan.yaml --strict", PLAN.replace("[dark]", "['dark ']")
    ),
    "two levels at one time": commanded(
        "plan check plan.yaml --strict",
        PLAN.replace("28d, ladder: *l", "28d, ladder: [{epsilon: 0.5}, {epsilon: 1}]"),
    ),
    "a folder for a plan": commanded("plan check ."),
    "a folder for a table": commanded(
        "replay --plan plan.yaml --input . --out o --time-column t --device-column d"
    ),
    "a folder that is no log": commanded("aggregate --plan plan.yaml --log . --state ../s"),
    "a log's URL for a folder": commanded("collect --plan plan.yaml --log file:log"),
    "an output in no folder": commanded("plan compile plan.yaml -o nowhere/plan.json"),
    "an output that is a folder": commanded("plan generate plan.yaml -o ."),
    "a module in place of a plan": commanded("plan generate plan.yaml -o plan.json"),
    "a hold in milliseconds": commanded("collect --plan plan.yaml --log log --hold 1000"),
    "a state in the log": commanded("aggregate --plan plan.yaml --log log --state log/s"),
    "a job's folder in the log": commanded(
        "stream --plan plan.yaml --log log --state log/s --database sqlite:///x.db --until-end"
    ),
    "looking all the time": commanded("aggregate --plan plan.yaml --log l --state s --every 0s"),
    "a state without results": commanded("estimates --state nowhere"),
    "a state without a run": commanded("backup --state nowhere --out backup.tar"),
    "a device's file that is none": commanded("ledger plan.yaml"),
}
WARNINGS = {
    "a value in __del__": warned(recorded_in_del),
    "a client a request": warned(hundred_clients),
    "no descriptors": warned(agreed_without_descriptors),
    "a seeded client that sends": warned(
        lambda: SeededClient(COMPILED, seed=1, publisher=MemoryPublisher(), leaks_values=True)
    ),
    "a web server for a collector": warned(posted_to_a_web_server),
}
MISTAKES = VALUES | ARGUMENTS | PLANS | COMMANDS | MEASURES | WARNINGS


def said_of(mistake: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the table has what it says
        mistake()
    return str(caught.value).replace("\n", " / ")


def rows() -> list[list[str]]:
    return [line.split(" | ") for line in TABLE.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("cause", "message", "remedy"), rows(), ids=lambda text: text[:40])
def test_what_is_said(cause, message, remedy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for listed, names in LISTS.items():
        message = message.replace(listed, ", ".join(names))
    expected = message + remedy.removeprefix("-")
    assert said_of(MISTAKES[cause]) == expected, "if that is meant: a row of messages.txt"


def test_every_mistake_is_in_the_table():
    assert [cause for cause, *_ in rows()] == [*MISTAKES]


@pytest.mark.parametrize("path", ["", "/v1/reports", "/v1/reports/"])
def test_the_path_of_a_request_may_be_in_the_url(path):
    assert HttpPublisher(f"https://a.example/behind{path}")._collector.path == "/behind"


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    print("\n".join(f"{cause} | {said_of(made)} | -" for cause, made in MISTAKES.items()))
