"""What of ``sotto aggregate`` is about publishing what it has estimated."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.errors import ParameterError

if TYPE_CHECKING:
    from pipelines.drain import DrainResult
    from pipelines.publishing import Publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("--publish", metavar="NAME", help="also to a topic of estimates, by its full name")
    add(
        "--publish-broker",
        type=Path,
        metavar="FILE",
        help="how to reach that topic's brokers (JSON); default: as those of the reports",
    )


def publish_of(args: argparse.Namespace) -> Publish | None:
    """Return what publishes the results, if anything is to."""
    if args.publish is None:
        if args.publish_broker is not None:
            raise ParameterError("--publish-broker goes with --publish")
        return None
    if args.share is not None:
        raise ParameterError("--publish does not go with --share: a share has a part of the counts")
    from pipelines.publishing import EstimatesTopic
    from sotto.brokers import Broker
    from sotto.sinktopics import SinkTopic

    file = args.publish_broker or args.broker
    if file is None and args.kafka is None:
        raise ParameterError("--publish-broker is missing: where is the topic of --publish?")
    broker = Broker(args.kafka) if file is None else Broker.from_file(file)
    return EstimatesTopic(broker, SinkTopic.parse(args.publish))


def tell(result: DrainResult, what_now: str = "") -> None:
    """Say why results could not be published."""
    print(
        f"sotto: error: generation {result.generation} is committed, but not published: "
        f"{result.unpublished}{what_now}",
        file=sys.stderr,
        flush=True,
    )
