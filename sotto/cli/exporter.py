"""Serve the job's health and its estimates to Prometheus.

The exporter reads what the job has left: the state directory, the database of results and, to
know how far behind the job is, the log or the topics. It takes no lock, writes nothing and may be
started, stopped and run twice at any time. Of a streaming job it reads the database that sotto
sink writes, which has how far the job has read, and asks the broker how much more there is:
--database, --topic and no --state. A source that
is missing or damaged is a metric (sotto_source_status), never an error. docs/operations.md lists
all metrics; deploy/prometheus has alerts for them, deploy/grafana a dashboard.

A scrape reads, waits at most --timeout, and is answered from the last reading otherwise, or
while that is not older than --max-age. Estimates are those of every metric's newest window; where
these make more than --max-series series, each metric's first ones are exposed, and
sotto_estimates_omitted counts the others.

No label comes from what a user did: labels are names in the plan, values of its domains, its
candidates. But estimates are for whom they were collected: other addresses than the loopback
one are served without encryption and to everyone.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.cli import options
from sotto.errors import ParameterError
from sotto.kafka import client_logs as clientlogs

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from pipelines.exporter.lag import Watched, WatchedDocuments, WatchedStream
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import ReportTopic
    from sotto.plan.registry import Registry

HELP = "serve the job's health and estimates to Prometheus"

PORT = 9469

EXAMPLES = """\
examples:
  sotto exporter --state build/state --log build/log
      http://127.0.0.1:9469/metrics, until interrupted
  sotto exporter --state build/state --kafka localhost:9092 --topic reports-e1-p8
      of a job that aggregates a topic
  sotto exporter --state build/state --database postgresql+psycopg://localhost/sotto
      where the job has a database of its own
  sotto exporter --database postgresql+psycopg://localhost/sotto --plan plan.yaml \\
      --kafka localhost:9092 --topic reports-e1-p8
      of a streaming job, and of the sink that writes its estimates
  sotto exporter --state build/state --once
      print what would be served
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    add("--state DIR", "of sotto aggregate")
    add("--database URL", "default: results.db in the state directory (SQLite)")
    lag = "of sotto aggregate, for the lag"
    where = parser.add_mutually_exclusive_group()
    options.add(where, "--log DIR", lag)
    options.add_broker(where, lag, lag)
    add("--topic NAME", "of sotto aggregate", [], action="append")
    plans = "of a streaming job, for what its plans allow; runs leave theirs in --state"
    add("--plan FILE", plans, [], action="append")
    add("--alerts FILE", "alerts.json of sotto alerts or sotto serve", [], action="append")
    add("--listen ADDRESS", "where to serve", "127.0.0.1")
    add("--port N", "where to serve; 0 for any free one", PORT, type=options.whole(0, 65535))
    most = "series of estimates at most, four an estimate"
    add("--max-series N", most, 2000, type=options.whole(0))
    add("--max-age DURATION", "how long a reading serves", "5s")
    add("--timeout DURATION", "how long a scrape waits", "5s")
    add("--once", "print the metrics and exit")


def run(args: argparse.Namespace) -> int:
    from prometheus_client import generate_latest

    logging.basicConfig(level=logging.WARNING, format="sotto: %(message)s")
    clientlogs.quiet()
    registry = _registry(args)
    if args.once:
        sys.stdout.write(generate_latest(registry).decode())
        return 0
    return _serve(args.listen, args.port, registry)


def _registry(args: argparse.Namespace) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    from pipelines.exporter.alerts import KeptAlerts
    from pipelines.exporter.database import Database
    from pipelines.exporter.health import Health, Readers
    from pipelines.sinks.sql import of_state

    if args.state is None and args.database is None:
        raise ParameterError("--state or --database must name the job's")
    database = Database(args.database or of_state(args.state), args.max_series)
    readers = Readers(args.state, database, *_watched(args), _registry_of(args.plan))
    registry = CollectorRegistry()
    registry.register(
        Health(readers.readings, args.max_age / 1000, None if args.once else args.timeout / 1000)
    )
    if args.alerts:
        registry.register(KeptAlerts(args.alerts))
    return registry


def _registry_of(paths: list[Path]) -> Registry | None:
    from sotto.plan.registry import Registry

    return Registry(options.plans_of(paths)[0]) if paths else None


def _watched(
    args: argparse.Namespace,
) -> tuple[Watched | WatchedStream | None, WatchedDocuments | None]:
    """Return what the job takes and where it publishes, as far as that is said."""
    from pipelines.exporter.lag import WatchedLog, WatchedTopics

    if bool(args.topic) != bool(args.kafka or args.broker):
        raise ParameterError("--topic goes with --kafka or --broker, and they with it")
    if args.log is not None:
        return WatchedLog(args.log), None
    if not args.topic:
        return None, None
    from pipelines.sources.kafka import KafkaTopics

    broker, topics = options.broker_of(args), options.topics_of(args.topic)
    if args.state is None:
        return _streaming(broker, topics)
    return WatchedTopics(KafkaTopics(broker, topics)), None


def _streaming(broker: Broker, topics: list[ReportTopic]) -> tuple[WatchedStream, WatchedDocuments]:
    from pipelines.exporter.lag import WatchedDocuments, WatchedStream
    from sotto.kafka.topics import SinkTopic

    if len({topic.name for topic in topics}) != 1:
        raise ParameterError("--topic must be epochs of one name")
    estimates = SinkTopic(topics[0].name, "estimates")
    return WatchedStream(broker, topics), WatchedDocuments(broker, estimates)


def _serve(address: str, port: int, registry: CollectorRegistry) -> int:
    from prometheus_client import start_http_server

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise ParameterError(f"--listen {address} --port {port}: {error.strerror}") from error
    host = f"[{address}]" if ":" in address else address
    print(f"http://{host}:{server.server_port}/metrics", flush=True)
    stopped.wait()
    server.shutdown()
    server.server_close()
    thread.join()
    return 0
