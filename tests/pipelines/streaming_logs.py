"""Logs of topics for streaming pipelines, and what a run makes of the same records."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from committed_states import projected, rejects
from report_logs import START, Device, Sent, append, faulty
from step_plans import DAY, PERIOD, THRESHOLD, category, number, plan, plans, string

from pipelines.aggregation.step import Tally
from pipelines.bounded.run import aggregate
from pipelines.results.documents import (
    Document,
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.results.records import EstimateRecord, Window
from sotto.kafka.topics import ReportTopic
from sotto.plan.compiled import CompiledPlan
from sotto.wire.decode import Reject
from sotto.wire.reasons import Reason

#: By the lane's name.
Logs = dict[str, list[Sent]]

EPOCHS = {
    "two": (ReportTopic("reports", 1, 2),),
    "epochs": (ReportTopic("reports", 1, 2), ReportTopic("reports", 2, 4)),
}


class Outcome(NamedTuple):
    """Results from a log, as a run and as a streaming pipeline say them; equal if both agree.

    ``fates`` are reports by what became of them; ``poison`` are rejects that no order changes.
    """

    windows: list[tuple[object, ...]]
    estimates: list[tuple[object, ...]]
    periods: list[tuple[object, ...]]
    fates: dict[str, int]
    poison: set[Reject]


def small_plans() -> list[CompiledPlan]:
    later = (
        category("colour", 3, 0.5, 1, 1.5),
        category("shape", 4, 0.25, 0.5, mechanism="oue"),
        number("speed", THRESHOLD, 0.25, 0.5),
        string("path", 128, 0.5, 1),
    )
    segments = [{"name": "os", "values": ["a", "b"]}, {"name": "app", "values": ["1"]}]
    third = plan(3, 4, *later[:3], segments=segments, minimum_reports=3)
    return [plans()[0], plan(2, 4, *later), third]


def honest(devices: int, periods: int, seed: int) -> list[Sent]:
    """Return what honest devices of both plans send, with some of it sent again."""
    source = random.Random(seed)
    sent = [
        one
        for period in range(periods)
        for each in range(devices)
        for one in Device(small_plans()[each % 3], source).period(START + period * PERIOD)
    ]
    again = source.sample(sent, len(sent) // 10)
    return sent + [Sent(append + source.randrange(DAY), message) for append, message in again]


def shard_said(message: bytes) -> int:
    return int.from_bytes(message[4:6], "little") if len(message) >= 40 else 0


def records(epochs: str, seed: int, periods: int = 6) -> Logs:
    """Return records of few devices over so many periods, with everything wrong at some."""
    source = random.Random(seed)
    sent = sorted(honest(4, periods, seed) + faulty(seed))
    topics = EPOCHS[epochs]
    half = START + periods * PERIOD // 2
    logs: Logs = defaultdict(list)
    for time, message in sent:
        topic = topics[time > half if len(topics) > 1 else 0]
        # A broker's clock is set back now and then.
        shown = Sent(time - source.choice([0, 0, 0, 60_000]), message)
        logs[lane_of(topic, topic.partition(shard_said(message)))].append(shown)
    for topic in topics:
        # Something comes last in every lane, long after.
        for each in range(topic.partitions):
            logs[lane_of(topic, each)].append(Sent(half + 99 * DAY, f"{topic}/{each}".encode()))
    return dict(logs)


def lane_of(topic: ReportTopic, partition: int) -> str:
    return f"{topic}-{partition}"


def write(log: Path, logs: Mapping[str, Iterable[Sent]]) -> None:
    for lane, content in logs.items():
        append(log, content, lane)


@lru_cache
def aggregated(epochs: str, seed: int) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "log"), records(epochs, seed))
        return outcome_of_run(Path(folder, "log"), Path(folder, "state"), small_plans())


def outcome_of_run(log: Path, state: Path, plans: list[CompiledPlan]) -> Outcome:
    result = aggregate(log, state, plans)
    return outcome_of_tables(projected(state), result.tally, result.rejects, rejects(state))


def outcome_of_tables(
    tables: Mapping[str, list[dict[str, object]]],
    tally: Tally,
    rejected: Mapping[str, int],
    rejects: Iterable[Reject],
) -> Outcome:
    return Outcome(
        rows_of(tables["windows"]),
        rows_of(tables["estimates"]),
        rows_of(tables["periods"], "closed"),
        fates(tally, rejected),
        poison(rejects),
    )


def streamed(documents: Iterable[Document], rejected: Iterable[Reject]) -> Outcome:
    """Return what somebody outside has of a pipeline: the newest documents, and the rejects.

    A window of which nothing counts any more is not looked at: a run has none such.
    """
    documents = list(documents)
    windows = [each for each in documents if isinstance(each, WindowDocument) and each.estimates]
    periods = [each.period for each in documents if isinstance(each, PeriodDocument)]
    (rejects,) = (each for each in documents if isinstance(each, RejectsDocument))
    (health,) = (each for each in documents if isinstance(each, HealthDocument))
    tally = Tally(*(health.health[name] for name in Tally._fields))  # type: ignore[arg-type]
    tables = {
        "windows": [row for each in windows for row in each.rows()[Window]],
        "estimates": [row for each in windows for row in each.rows()[EstimateRecord]],
        "periods": periods,
    }
    # At least once: what was rejected before a rollback is rejected again.
    return outcome_of_tables(tables, tally, rejects.rejects, rejected)


def rows_of(
    rows: Iterable[Mapping[str, object]], without: str = "revision"
) -> list[tuple[object, ...]]:
    kept = [sorted((k, v) for k, v in row.items() if k != without) for row in rows]
    return sorted((tuple((k, repr(v)) for k, v in row) for row in kept), key=repr)


def fates(tally: Tally, rejects: Mapping[str, int]) -> dict[str, int]:
    return {**tally._asdict(), **rejects}


def poison(rejects: Iterable[Reject]) -> set[Reject]:
    return {reject for reject in rejects if reject.reason != Reason.REVOKED}
