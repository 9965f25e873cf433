"""Plans, devices and audits for the tests of the SDK."""

from __future__ import annotations

import copy
import hashlib
import json
import sqlite3
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import decode_message

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
#: The beginning of a budget period of a week.
START = 2900 * WEEK

#: Plans are values: each is checked once.
compiled = cache(CompiledPlan.from_json)
#: Ceilings that nothing reaches.
VAST = {"period": 10**12, "lifetime": 10**12}
LADDER = [(500_000, 0), (1_000_000, DAY), (2_000_000, WEEK)]
#: Two levels are sent; the last is the permanent response.
CONSTANT = [(500_000, 0), (1_000_000, DAY), (2_000_000, DAY)]
LATE = [(500_000, WEEK), (1_500_000, 2 * WEEK)]


def metric(name: str, kind: str = "first", limit: int = 1, **changes: Any) -> dict[str, Any]:
    """A metric of a compiled plan: a category of three values unless changed."""
    ladder = changes.pop("ladder", LATE if kind == "reservoir" else LADDER)
    document = {
        "name": name,
        "type": "category",
        "mechanism": {"name": "grr", "domain_size": 4},
        "domain": ["a", "b", "c"],
        "outside": "other",
        "missing": False,
        "window": 4 * WEEK,
        "repeat": {"kind": kind, "limit": limit},
        "ladder": [{"epsilon": epsilon, "after": after} for epsilon, after in ladder],
    }
    return {**document, **changes}


def number(name: str, **changes: Any) -> dict[str, Any]:
    """A number from 0 to 10 that may be missing."""
    document = metric(name, **changes)
    del document["domain"]
    return {
        **document,
        "type": "number",
        "mechanism": {"name": "threshold", "missing": True},
        "outside": "clip",
        "missing": True,
        "range": [0.0, 10.0],
    }


def string(name: str, cohorts: int = 4, **changes: Any) -> dict[str, Any]:
    """A string in 64 bits."""
    document = metric(name, **changes)
    del document["domain"], document["outside"]
    return {
        **document,
        "type": "string",
        "mechanism": {"name": "rappor", "bits": 64, "hashes": 2, "cohorts": cohorts},
    }


def items(name: str = "app", clip: int = 1000, **changes: Any) -> dict[str, Any]:
    """The most frequent of three items, or of others, that are counted for a period."""
    changes.setdefault("ladder", [(500_000, 0), (2_000_000, DAY)])
    return {
        **metric(name, **changes),
        "type": "top_item",
        "mechanism": {"name": "permute_and_flip", "domain_size": 4, "clip": clip},
    }


def plan(*metrics: dict[str, Any], **changes: Any) -> CompiledPlan:
    """A compiled plan of a week's period."""
    document = {
        "format": 2,
        "collector": "fleet.example",
        "plan": "trial",
        "version": 1,
        "owner": "owner@fleet.example",
        "expires": START + 520 * WEEK,
        "period": WEEK,
        "resolution": HOUR,
        "grace": DAY,
        "retention": 30 * DAY,
        "shards": 8,
        "ceilings": {"period": 12_000_000, "lifetime": 640_000_000},
        "metrics": [copy.deepcopy(each) for each in metrics or (metric("colour"),)],
        **changes,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return compiled(text.encode())


def seeded(compiled: CompiledPlan | None = None, **options: Any) -> SeededClient:
    """A device at the start of a period, of one seed, in memory unless changed."""
    return SeededClient(compiled or plan(), **{"seed": 1, "clock": FakeClock(START), **options})


def threadless(given: Any, **options: Any) -> Client:
    """A client that draws from the operating system, in memory unless changed."""
    options = {
        "state": NO_LIFETIME_BOUND,
        "publisher": MemoryPublisher(),
        "clock": FakeClock(START),
        **options,
    }
    return Client(given, background=False, **options)


def reporter(publisher, *metrics, **changes):
    """A device that has recorded a colour and reports to a publisher."""
    client = seeded(plan(*metrics, **changes), publisher=publisher, leaks_values=True)
    client.record("colour", "a")
    return client


class Calling(MemoryPublisher):
    """Calls something before and after it takes a message, which may fail."""

    def __init__(self, after=lambda: None, before=lambda: None):
        super().__init__()
        self.after, self.before = after, before

    def publish(self, shard, message):
        self.before()
        super().publish(shard, message)
        self.after()


class Failing:
    """A connection that fails at statements of one kind, before or after they have worked."""

    def __init__(self, connection, prefix, after):
        self._connection = connection
        self._prefix = prefix
        self._after = after

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def cursor(self):
        return self

    def execute(self, statement, *arguments):
        hit = statement.startswith(self._prefix)
        if not hit or self._after:
            result = self._connection.execute(statement, *arguments)
        if hit:
            raise sqlite3.OperationalError("disk I/O error")
        return result

    def executemany(self, statement, rows):
        for row in rows:
            self.execute(statement, row)


class Sent(NamedTuple):
    """One report as an aggregator reads it."""

    shard: int
    fingerprint: bytes
    metric: int
    level: int
    pseudonym: bytes
    chain: bytes
    event: int
    payload: bytes


def reports(messages: Iterable[tuple[int, bytes]]) -> list[Sent]:
    """All reports of messages, in order."""
    return [
        Sent(shard, message.fingerprint, run.metric, *row)
        for shard, body in messages
        for message in (decode_message(body),)
        for run in message.groups
        for row in run.rows
    ]


def counted(sent: Iterable[Sent], plans: Iterable[CompiledPlan]) -> dict[bytes, int]:
    """The amounts that an aggregator counts: micro-epsilon of the newest levels, by pseudonym.

    Fails if a device ever sent two payloads for one key or bound a chain twice.
    """
    known = {each.fingerprint: each for each in plans}
    payloads: dict[tuple[bytes, int, bytes, int], bytes] = {}
    bindings: dict[bytes, tuple[bytes, bytes, int, int]] = {}
    newest: dict[bytes, tuple[bytes, int]] = {}
    for report in sent:
        key = (report.pseudonym, report.metric, report.chain, report.level)
        assert payloads.setdefault(key, report.payload) == report.payload
        binding = (report.pseudonym, report.fingerprint, report.metric, report.event)
        assert bindings.setdefault(report.chain, binding) == binding
        cost = known[report.fingerprint].metrics[report.metric].mechanism.certified(report.level)
        if cost > newest.get(report.chain, (b"", 0))[1]:
            newest[report.chain] = (report.pseudonym, cost)
    totals: defaultdict[bytes, int] = defaultdict(int)
    for pseudonym, cost in newest.values():
        totals[pseudonym] += cost
    return dict(totals)


def raw(path, *without):
    """All bytes of the device's files. Read by another process: this one would lose its locks."""
    files = sorted(set(path.parent.glob(path.name + "*")) - set(without))
    return subprocess.run(["cat", *files], check=True, capture_output=True).stdout


def tables(path):
    """The version of a store's schema, and a hash of its tables."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql <> '' ORDER BY name")
        text = " ".join("\n".join(sql for (sql,) in rows).split())
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version, hashlib.sha256(text.encode()).hexdigest()[:16]
