"""Readers of the jobs that one exporter serves: of runs a state directory each, or of streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines.exporter.database import WatchedResults
from pipelines.exporter.engine import WatchedEngine
from pipelines.exporter.health import Readers, RunReaders, StreamReaders, WatchedJob
from pipelines.exporter.lag import (
    Watched,
    WatchedDocuments,
    WatchedLog,
    WatchedStream,
    WatchedTopics,
)
from pipelines.sinks.sql import of_state
from pipelines.sources.kafka import KafkaTopics
from sotto.errors import ParameterError
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry


def readers_of_runs(
    states: Sequence[Path],
    logs: Sequence[Path],
    broker: Broker | None,
    topics: Sequence[ReportTopic],
    database: str | None,
    most: int,
) -> dict[str, Readers]:
    """Return what reads each state directory, its results, and what its job takes.

    Logs, or names of topics, are one for each state directory, in the same order, or none. The
    database is that of all; None for each directory's own. At most so many series are exposed.
    Raises ParameterError if their numbers differ.
    """
    sources: Sequence[Watched | None] = [None] * len(states)
    if logs:
        _check_pairs("--log", len(logs), len(states))
        sources = [WatchedLog(log) for log in logs]
    elif broker is not None:
        named = _by_name(topics)
        _check_pairs("the name of --topic", len(named), len(states))
        sources = [WatchedTopics(KafkaTopics(broker, each)) for each in named.values()]
    one = WatchedResults(database, most) if database else None
    found: dict[str, Readers] = {}
    for state, source in zip(states, sources, strict=True):
        own = one or WatchedResults(of_state(state), most)
        shared = one is not None and len(states) > 1
        found[str(state)] = RunReaders(state, own, source, shared).readings
    return found


def reader_of_streams(
    database: str,
    most: int,
    broker: Broker | None,
    topics: Sequence[ReportTopic],
    plans: Sequence[CompiledPlan],
    flink: str | None,
) -> Readers:
    """Return what reads the database of sinks, and the topics and the engine of their jobs."""
    streams = []
    for name, epochs in _by_name(topics).items():
        assert broker is not None
        estimates = SinkTopic(name, "estimates")
        documents = WatchedDocuments(broker, estimates)
        streams.append(WatchedJob(str(estimates), WatchedStream(broker, epochs), documents))
    of_collector: dict[str, list[CompiledPlan]] = {}
    for plan in plans:
        of_collector.setdefault(plan.collector, []).append(plan)
    registries = {collector: Registry(each) for collector, each in of_collector.items()}
    engine = WatchedEngine(flink) if flink else None
    return StreamReaders(WatchedResults(database, most), streams, registries, engine).readings


def _check_pairs(what: str, given: int, states: int) -> None:
    if given != states:
        raise ParameterError(
            f"{what} must be given once for each --state, in the same order: "
            f"got {given} for {states}"
        )


def _by_name(topics: Sequence[ReportTopic]) -> dict[str, list[ReportTopic]]:
    """Return the epochs of each name."""
    found: dict[str, list[ReportTopic]] = {}
    for topic in topics:
        found.setdefault(topic.name, []).append(topic)
    return found
