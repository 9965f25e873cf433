"""Serve the health of jobs, and their estimates, to Prometheus.

The exporter reads what the job has left: the state directory, the database of results and, to
know how far behind the job is, the log or the topics. It takes no lock, writes nothing and may be
started, stopped and run twice at any time. It reads a streaming job's database that sotto sink
writes, which has how far the job has read, and asks the broker how much more there is: --database,
--topic and no --state; Flink says how its checkpoints are (--flink). One exporter serves several
jobs, each in its time: every series has the label collector. A source that is missing or damaged is
a metric (sotto_source_status), never an error. docs/reference/metrics.md lists all metrics;
deploy/prometheus has alerts for them, deploy/grafana a dashboard.

A scrape reads, waits at most --timeout, and is answered from the last reading otherwise, or
while that is not older than --max-age. Estimates are those of every metric's newest window; where
these make more than --max-series series of a collector, each metric's first ones are exposed, and
sotto_estimates_omitted counts the others.

No label comes from what a user did: labels are names in the plan, values of its domains, its
candidates. But estimates are for whom they were collected: other addresses than the loopback
one are served without encryption and to everyone.

examples:
  sotto exporter --state build/state --log build/log
      http://127.0.0.1:9469/metrics, until interrupted
  sotto exporter --state build/state --kafka localhost:9092 --topic reports-e1-p8
      of a job that aggregates a topic
  sotto exporter --state build/state --database postgresql+psycopg://localhost/sotto
      where the job has a database of its own
  sotto exporter --database postgresql+psycopg://localhost/sotto --plan plan.yaml \\
      --kafka localhost:9092 --topic reports-e1-p8 --flink http://localhost:8081
      of a streaming job, and of the sink that writes its estimates
  sotto exporter --state a/state --log a/log --state b/state --log b/log
      of several collectors
  sotto exporter --state build/state --once
      print what would be served
"""

from __future__ import annotations

import argparse
import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

from sotto.errors import ParameterError
from sotto.kafka import client_logs as clientlogs
from sotto.plan.files import plans_of
from sotto_cli import options

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


PORT = 9469


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    add("--state DIR", "of sotto aggregate; again for another collector's", [], action="append")
    add("--database URL", "default: results.db in each state directory (SQLite)")
    lag = "of sotto aggregate, for the lag"
    where = parser.add_mutually_exclusive_group()
    order = "; of several states each its own, in the same order"
    options.add(where, "--log DIR", lag + order, [], action="append")
    options.add_broker(where, lag, lag)
    add("--topic NAME", "of sotto aggregate" + order, [], action="append")
    plans = "of streaming jobs, for what their plans allow; runs leave theirs in --state"
    add("--plan FILE", plans, [], action="append")
    add("--flink URL", "of streaming jobs: Flink's job manager, for their checkpoints and restarts")
    add("--alerts FILE", "alerts.json of sotto alerts or sotto serve", [], action="append")
    options.add_address(parser, PORT)
    most = "series of estimates at most, four an estimate"
    add("--max-series N", most, 2000, type=options.whole(0))
    add("--max-age DURATION", "how long a reading serves", "5s")
    add("--timeout DURATION", "how long a scrape waits", "5s")
    add("--once", "print the metrics and exit")


def run(args: argparse.Namespace) -> None:
    from prometheus_client import generate_latest

    logging.basicConfig(level=logging.WARNING, format="sotto: %(message)s")
    clientlogs.quiet()
    registry = _registry(args)
    if args.once:
        sys.stdout.write(generate_latest(registry).decode())
        return
    _serve(args.listen, args.port, registry)


def _registry(args: argparse.Namespace) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    from pipelines.exporter.alerts import KeptAlerts
    from pipelines.exporter.health import JobsCollector, reader_of_streams, readers_of_runs

    if not args.state and args.database is None:
        raise ParameterError("--state or --database must name the job's")
    options.check_watched(args)
    broker = options.broker_of(args) if args.topic else None
    topics = options.topics_of(args.topic) if args.topic else []
    if args.state:
        if args.flink or args.plan:
            raise ParameterError(
                "--flink and --plan are for streaming jobs: runs have --state, with their plans"
            )
        readers = readers_of_runs(
            args.state, args.log, broker, topics, args.database, args.max_series
        )
    else:
        plans, _ = plans_of(args.plan)
        streams = reader_of_streams(
            args.database, args.max_series, broker, topics, plans, args.flink
        )
        readers = {"": streams}
    registry = CollectorRegistry()
    wait = None if args.once else args.timeout / 1000
    registry.register(JobsCollector(readers, args.max_age / 1000, wait))
    if args.alerts:
        registry.register(KeptAlerts(args.alerts))
    return registry


def _serve(address: str, port: int, registry: CollectorRegistry) -> None:
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise ParameterError(f"--listen {address} --port {port}: {error.strerror}") from error
    host = f"[{address}]" if ":" in address else address
    with options.stopping() as stopped:
        print(f"http://{host}:{server.server_port}/metrics", flush=True)
        stopped.wait()
    server.shutdown()
    server.server_close()
    thread.join()
