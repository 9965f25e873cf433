"""Copy an embedded log to a Kafka topic.

Every message goes to the partition of its shard, as devices send it. The broker stamps what it
takes with its own time, and reports are judged by that: what is older than the plan accepts is
rejected as late. A topic of reports takes no other times, so history is best counted where it is,
with sotto aggregate --log.

Done twice, or again after an error, it sends duplicates, which aggregators count once.

examples:
  sotto topics create reports --partitions 8 --plan plan.yaml --kafka localhost:9092
  sotto log copy replayed --topic reports-e1-p8 --kafka localhost:9092
      send what sotto replay, or a collector, has written
  sotto log copy build/log --since 2026-11-01 --topic reports-e1-p8 --broker client.json
      only what was appended since
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.exit_status import ExitStatus
from sotto.log.reader import EARLIEST, LATEST
from sotto_cli import options

if TYPE_CHECKING:
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import ReportTopic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    copy = actions.add_parser("copy", help="send its messages to a topic")
    copy.add_argument("log", type=Path, help="the folder of the log")
    add = partial(options.add, copy)
    add("--topic NAME", "a topic of reports, by its full name", required=True)
    options.add_broker(copy.add_mutually_exclusive_group(required=True))
    add("--since TIME", "only what was appended from then on")
    add("--until TIME", "only what was appended up to then")


def run(args: argparse.Namespace) -> int:
    [topic] = options.topics_of(args.topic)
    since = EARLIEST if args.since is None else args.since
    until = LATEST if args.until is None else args.until
    return ExitStatus.found(send(args.log, options.broker_of(args), topic, since, until))


def send(
    log: Path, broker: Broker, topic: ReportTopic, since: int = EARLIEST, until: int = LATEST
) -> int:
    """Copy what was appended to a log in a span of time; return how many records were left out."""
    from pipelines.sinks.reports import copy_log

    options.quiet_libraries()
    size = sum(segment.stat().st_size for segment in log.rglob("*.seg"))
    with options.progress_bar("bytes", "copy") as progress:
        done = 0

        def show(more: int) -> None:
            nonlocal done
            done += more
            progress(done, size)

        sent, left = copy_log(log, broker, topic, since, until, show)
    print(f"{topic}: {sent:,} messages sent")
    if left:
        options.warn(f"{left:,} records were left out: damaged, or longer than a topic takes")
    return left
