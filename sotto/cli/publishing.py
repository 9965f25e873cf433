"""What of ``sotto aggregate`` and ``sotto combine`` is about publishing what they estimate."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.errors import ParameterError

if TYPE_CHECKING:
    from pipelines.combine import Combined
    from pipelines.combinedtopic import CombinedTopic
    from pipelines.drain import DrainResult
    from pipelines.publishing import Publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of what publishes estimates and what was rejected."""
    add_estimates(parser, "default: as those of the reports")
    parser.add_argument(
        "--publish-quarantine",
        metavar="NAME",
        help="what is rejected also to a topic of quarantine, by its full name",
    )


def add_estimates(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Declare the arguments of what publishes estimates alone."""
    add = parser.add_argument
    add("--publish", metavar="NAME", help="also to a topic of estimates, by its full name")
    add(
        "--publish-broker",
        type=Path,
        metavar="FILE",
        help=f"how to reach that topic's brokers (JSON); {otherwise}",
    )


def publish_of(args: argparse.Namespace) -> Publish | None:
    """Return what publishes the results, if anything is to."""
    if args.publish is None and args.publish_quarantine is None:
        if args.publish_broker is not None:
            raise ParameterError("--publish-broker goes with --publish or --publish-quarantine")
        return None
    if args.publish is not None and args.share is not None:
        raise ParameterError(
            "--publish does not go with --share: a share has a part of the counts; "
            "sotto combine --publish publishes those of all"
        )
    from pipelines.publishing import EstimatesTopic, Several
    from pipelines.quarantinetopic import QuarantineTopic
    from sotto.brokers import Broker
    from sotto.sinktopics import SinkTopic

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


def combined_of(args: argparse.Namespace) -> CombinedTopic | None:
    """Return what publishes the sum of shares, if it is to be."""
    if args.publish is None and args.publish_broker is None:
        return None
    if args.publish is None:
        raise ParameterError("--publish-broker goes with --publish")
    if args.publish_broker is None:
        raise ParameterError("--publish-broker is missing: where is the topic to publish to?")
    from pipelines.combinedtopic import CombinedTopic
    from pipelines.publishing import EstimatesTopic
    from sotto.brokers import Broker
    from sotto.sinktopics import SinkTopic

    broker = Broker.from_file(args.publish_broker)
    return CombinedTopic(EstimatesTopic(broker, SinkTopic.parse(args.publish)))


def tell(result: DrainResult | Combined, what_now: str = "") -> None:
    """Say why results could not be published."""
    print(
        f"sotto: error: generation {result.generation} is committed, but not published: "
        f"{result.unpublished}{what_now}",
        file=sys.stderr,
        flush=True,
    )
