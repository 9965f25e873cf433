"""Writes the files of this folder; run it from the root of a checkout of release 0.4.0."""

from __future__ import annotations

import gzip
import io
import json
import random
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import sqlalchemy as sql
from pipelines.sinks.documents import parse

from clientsdk import MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient
from pipelines.bounded.run import aggregate
from pipelines.sinks import schema, tables
from pipelines.sinks.committed import documents_of, health_of, projection
from pipelines.sinks.jobs import Advance
from pipelines.sinks.sql import DocumentDatabase
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.directory import StateDirectory
from sotto.log.writer import LogWriter
from sotto.plan.compile import load_plan
from sotto.plan.files import plans_of

HERE = Path(__file__).parent
DAY, HOUR = 86_400_000, 3_600_000
PERIOD = 7 * DAY
#: The first period of four, and when 0.4.0 aggregated for the last time: in the fourth.
FIRST = 2800
UPGRADED = (FIRST + 3) * PERIOD + 4 * DAY
DEVICES = 36
#: The devices of which files are kept: when each first recorded, and when it was closed.
KEPT = {
    "fleet": (UPGRADED - 12 * HOUR, UPGRADED - 3 * HOUR),
    "attributes": (FIRST * PERIOD + DAY, FIRST * PERIOD + 2 * DAY),
}
SCREENS = ("map", "list", "help")


def compile_plans() -> None:
    fingerprints = {}
    for file in sorted((HERE / "plans").glob("*.yaml")):
        plan = load_plan(file).compile()
        file.with_suffix(".json").write_bytes(plan.to_json())
        fingerprints[file.stem] = plan.fingerprint_hex
    (HERE / "fingerprints.json").write_text(json.dumps(fingerprints, indent=1) + "\n")


def record_all(client: SeededClient, source: random.Random) -> None:
    """Record a value of each metric of the plan ``fleet``."""
    client.record("colour", source.choices(("red", "green", "mauve"), (5, 3, 1))[0])
    client.record("late", source.random() < 0.3)
    client.record("delay", 60 * source.betavariate(2, 5))
    client.record("length", 100 * source.random())
    client.record("place", source.choice(("home", "home", "away")))
    client.record("grade", source.choice(("bad", "ok", "good", "good")))
    for _ in range(5):
        client.record("screen", source.choice(SCREENS))


def reports() -> Iterator[tuple[int, bytes]]:
    """Yield append times and messages of a fleet that answers in four periods."""
    plan = load_plan(HERE / "plans/fleet.yaml").compile()
    for number in range(DEVICES):
        source = random.Random(number)
        clock = FakeClock(FIRST * PERIOD)
        segments = {"os": ("linux", "mac", "other")[number % 3]}
        with SeededClient(plan, seed=number, clock=clock, segments=segments) as client:
            publisher = client.publisher
            assert isinstance(publisher, MemoryPublisher)
            for period in range(4):
                clock.now = (FIRST + period) * PERIOD + source.randrange(3 * DAY)
                record_all(client, source)
                for wait in (3 * HOUR, 2 * DAY):
                    clock.now += wait
                    client.flush()
                    while publisher.messages:
                        yield clock.now, publisher.messages.pop(0)[1]
            clock.now = (FIRST + 4) * PERIOD + DAY + 3 * HOUR
            client.flush()
            clock.now += DAY
            client.flush()
            while publisher.messages:
                yield clock.now, publisher.messages.pop(0)[1]


@cache
def sorted_reports() -> list[tuple[int, bytes]]:
    return sorted(reports(), key=lambda each: each[0])


def unknown() -> bytes:
    """Return a message of a plan that the aggregator is not given."""
    plan = load_plan(HERE / "plans/compose.yaml").compile()
    with SeededClient(plan, seed=1, clock=FakeClock(UPGRADED - 2 * DAY)) as client:
        client.record("theme", "dark")
        client.clock.now += HOUR
        client.flush()
        publisher = client.publisher
        assert isinstance(publisher, MemoryPublisher)
        return publisher.messages[0][1]


def append_before(folder: Path) -> tuple[int, bytes]:
    """Write the reports before the upgrade, and return one of them."""
    before = [each for each in sorted_reports() if each[0] < UPGRADED]
    with LogWriter(folder, "devices") as log:
        for at, message in before:
            log.append(message, at)
    with LogWriter(folder, "devices", new_segment=True) as log:
        log.append(b"not a message", UPGRADED - 3)
        log.append(unknown(), UPGRADED - 2)
        log.append(before[-1][1], UPGRADED - 1)
    return before[-2]


def append_after(folder: Path, again: bytes) -> None:
    """Write the reports after it, in place of segments that are gone by their age."""
    first, *_ = sorted((folder / "devices").glob("*.seg"))
    first.unlink()
    with LogWriter(folder, "devices") as log:
        # Sent again, since the answer was lost.
        log.append(again, UPGRADED + 1)
        for at, message in sorted_reports():
            if at >= UPGRADED:
                log.append(message, at)


def pack(folder: Path, name: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder), recursive=False, filter=_anonymous)
    (HERE / name).write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def close_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")


def make_state(folder: Path) -> None:
    """Aggregate in two runs, then pack state and later log, documents and a sink's database."""
    log, state = folder / "log", folder / "state"
    _, again = append_before(log)
    plans, candidates = plans_of([HERE / "plans/fleet.yaml"])
    source = EmbeddedLog(log)
    for moment in (UPGRADED - 7 * DAY, None):
        aggregate(source, state, plans, as_of=moment, candidates=candidates)
    close_database(state / "results.db")
    pack(state, "state.tar.gz")
    append_after(log, again)
    pack(log, "log.tar.gz")
    directory = StateDirectory(state)
    manifest = directory.manifest()
    registry, candidates = directory.plans.with_given(plans, candidates)
    whole = projection(directory, manifest, registry, candidates, 0)
    records = [
        *documents_of(whole, registry.collector, None),
        health_of(manifest, registry.collector),
    ]
    lines = "\n".join(json.dumps([key.decode(), value.decode()]) for key, value in records)
    (HERE / "documents.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    file = folder / "sink.db"
    with DocumentDatabase(sql.URL.create("sqlite", database=str(file))) as database:
        database.offsets("reports-estimates", "first")
        read = [Advance(0, 0, len(records))]
        database.apply("reports-estimates", "first", read, [parse(*each) for each in records])
    close_database(file)
    (HERE / "sink.db.gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))


def make_devices(folder: Path) -> None:
    """Keep the files of two devices that have something to send, of each the guard too."""
    for name, (began, closed) in KEPT.items():
        plan = load_plan(HERE / f"plans/{name}.yaml").compile()
        place = folder / name
        place.mkdir()
        clock = FakeClock(began)
        source = random.Random(5)
        segments = {"os": "linux"}
        with SeededClient(
            plan, seed=5, state=place / "device.db", clock=clock, segments=segments
        ) as client:
            while clock.now < closed:
                clock.now += 3 * HOUR
                if name == "fleet":
                    record_all(client, source)
                else:
                    for metric in plan.metrics:
                        client.record(metric.name, 5 if metric.type == "number" else "red")
                client.flush()
        pack(place, f"device-{name}.tar.gz")


def postgres() -> str:
    """Return what makes the tables and views of PostgreSQL."""
    lines: list[str] = []
    made = sql.create_mock_engine(
        "postgresql://", lambda each, *_: lines.append(str(each.compile(dialect=made.dialect)))
    )
    for metadata in (tables.METADATA, tables.SINK_METADATA):
        metadata.create_all(made, checkfirst=False)
    return ";\n".join(line.strip() for line in (*lines, *schema._statements("postgresql"))) + ";\n"


def main() -> None:
    compile_plans()
    with tempfile.TemporaryDirectory() as folder:
        make_state(Path(folder))
        make_devices(Path(folder))
    (HERE / "postgresql.sql.gz").write_bytes(gzip.compress(postgres().encode(), 9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
