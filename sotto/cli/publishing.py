"""What of ``sotto aggregate`` is about publishing what it estimates."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.errors import ParameterError

if TYPE_CHECKING:
    from pipelines.bounded.run import RunResult
    from pipelines.sinks.kafka import Publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of what publishes estimates and what was rejected."""
    add = parser.add_argument
    add("--publish", metavar="NAME", help="also to a topic of estimates, by its full name")
    add(
        "--publish-quarantine",
        metavar="NAME",
        help="what is rejected also to a topic of quarantine, by its full name",
    )
    add(
        "--publish-broker",
        type=Path,
        metavar="FILE",
        help="how to reach these topics' brokers (JSON); default: as those of the reports",
    )


def publish_of(args: argparse.Namespace) -> Publish | None:
    """Return what publishes the results, if anything is to."""
    if args.publish is None and args.publish_quarantine is None:
        if args.publish_broker is not None:
            raise ParameterError("--publish-broker goes with --publish or --publish-quarantine")
        return None
    from pipelines.sinks.kafka import EstimatesTopic, QuarantineTopic, Several
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import SinkTopic

    file = args.publish_broker or args.broker
    if file is None and args.kafka is None:
        raise ParameterError("--publish-broker is missing: where is the topic to publish to?")
    broker = Broker(args.kafka) if file is None else Broker.from_file(file)
    ways: list[Publish] = []
    if args.publish is not None:
        ways.append(EstimatesTopic(broker, SinkTopic.parse(args.publish)))
    if args.publish_quarantine is not None:
        ways.append(QuarantineTopic(broker, SinkTopic.parse(args.publish_quarantine)))
    return Several(ways)


def tell(result: RunResult, what_now: str = "") -> None:
    """Say why results could not be published."""
    print(
        f"sotto: error: generation {result.generation} is committed, but not published: "
        f"{result.unpublished}{what_now}",
        file=sys.stderr,
        flush=True,
    )
