"""A job that is watched: a small log, drained, and what its exporter says."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from drain_logs import START, Device, Sent, faulty, honest, write
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from step_plans import plans

from pipelines.drain import drain
from pipelines.exporter import lag
from pipelines.exporter.database import Database
from pipelines.exporter.health import Health, Readers
from pipelines.results import of_state
from sotto.log import LogWriter

CANDIDATES = {plans()[1].fingerprint: {"path": ("home", "away")}}


class Watched(NamedTuple):
    """Where a job keeps its things."""

    log: Path
    state: Path


@cache
def _drained() -> tempfile.TemporaryDirectory[str]:
    """Drain once a process; the folder goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="sotto-watched-")
    atexit.register(folder.cleanup)
    log = write(Path(folder.name) / "log", honest(20, 4, 1) + faulty(2))
    drain(log, Path(folder.name) / "state", plans(), candidates=CANDIDATES)
    return folder


def watched(folder: Path) -> Watched:
    """Return a job that has drained a log with everything in it, in a folder of its own."""
    shutil.copytree(_drained().name, folder, dirs_exist_ok=True)
    return Watched(folder / "log", folder / "state")


def late_messages(number: int) -> list[Sent]:
    """Return messages for a log whose records are all older."""
    device = Device(plans()[0], random.Random(5))
    colour = device.plan.metric("colour")
    sent = [device.chain(colour, START)[0] for _ in range(number)]
    return [Sent(START + 10**9 + at, one.message) for at, one in enumerate(sent)]


def append(log: Path, lane: str, sent: list[Sent]) -> None:
    """Append messages to a lane."""
    with LogWriter(log, lane, fsync="never") as writer:
        for one in sent:
            writer.append(one.message, one.append)


def exposition(
    state: Path | None,
    log: Path | lag.Watched | None = None,
    *,
    max_series: int = 2000,
    database: str | None = None,
) -> str:
    """Return what an exporter exposes."""
    found = None if database is None and state is None else database or of_state(state or Path())
    results = None if found is None else Database(found, max_series)
    registry = CollectorRegistry()
    registry.register(
        Health(Readers(state, results, lag.WatchedLog(log) if isinstance(log, Path) else log).read)
    )
    return generate_latest(registry).decode()


Labels = frozenset[tuple[str, str]]


def samples(text: str) -> dict[str, dict[Labels, float]]:
    """Return the samples of an exposition, by name and labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found.setdefault(sample.name, {})
            found[sample.name][labels] = sample.value
    return found


def value(found: dict[str, dict[Labels, float]], name: str, **labels: str) -> float:
    """Return one sample."""
    return found[name][frozenset(labels.items())]
