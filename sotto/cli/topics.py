"""Make and check the topics that reports are sent to.

A topic's name says its epoch and its partitions, such as reports-e1-p8; it is what publishers and
aggregators are given. A device's messages all go to one partition, so the number never changes: a
new number is a new epoch, once the old topic is drained.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.cli.tables import table
from sotto.durations import duration_text
from sotto.errors import BrokerError, ParameterError

if TYPE_CHECKING:
    from sotto.brokers import Broker
    from sotto.compiled import CompiledPlan
    from sotto.topics import FoundTopic, ReportTopic

HELP = "make and check the Kafka topics of reports"

_EXAMPLES = """\
examples:
  sotto topics create reports --partitions 8 --plan plan.json --broker client.json
      make reports-e1-p8 with append times, and a retention that covers the plan
  sotto topics check reports-e1-p8 --plan plan.json --servers localhost:9092
      say what keeps it from being used, and what to do
  sotto topics list reports --servers localhost:9092
      its epochs

client.json says how to reach a broker: {"servers": "host:port,host:port", "ca": "authority.pem",
"user": "fleet", "password_file": "password"}; all but servers may be left out.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sotto topics``."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a topic, or check the one that is there")
    check = actions.add_parser("check", help="check a topic against plans")
    listing = actions.add_parser("list", help="show the epochs of a name")
    create.add_argument("name", help="without epoch and partitions")
    check.add_argument("topic", help="the full name, such as reports-e1-p8")
    listing.add_argument("name", help="without epoch and partitions")
    add = create.add_argument
    add("--partitions", type=int, required=True, metavar="P", help="never to be changed")
    add("--epoch", type=int, default=1, metavar="N", help="default: 1")
    add("--replicas", type=int, default=1, metavar="N", help="brokers that keep it (default: 1)")
    add("--retention", metavar="DURATION", help="default: what the plans need")
    for action in (create, check):
        action.add_argument(
            "--plan",
            type=Path,
            action="append",
            required=True,
            metavar="FILE",
            help="a plan (YAML), or a compiled one (.json); all whose reports it takes",
        )
    for action in (create, check, listing):
        where = action.add_mutually_exclusive_group(required=True)
        where.add_argument("--servers", metavar="HOST:PORT", help="in the clear, without a name")
        where.add_argument("--broker", type=Path, metavar="FILE", help="how to reach it (JSON)")


def run(args: argparse.Namespace) -> int:
    """Run ``sotto topics`` and return its exit status."""
    from sotto.brokers import Broker

    broker = Broker(args.servers) if args.broker is None else Broker.from_file(args.broker)
    lines = {"create": _create, "check": _check, "list": _list}[args.action](args, broker)
    print("\n".join(lines))
    return 0


def _create(args: argparse.Namespace, broker: Broker) -> list[str]:
    from sotto.durations import parse_duration
    from sotto.topicadmin import connected
    from sotto.topics import ReportTopic

    topic = ReportTopic(args.name, args.epoch, args.partitions)
    horizon = _horizon(args.plan, topic)
    retention = horizon if args.retention is None else parse_duration(args.retention)
    if retention < horizon:
        raise ParameterError(
            f"--retention {args.retention} is shorter than the plans accept reports for: "
            f"give at least {duration_text(horizon)}"
        )
    with connected(broker) as topics:
        made = topics.create(topic, args.replicas, retention)
        found = topics.check(topic, horizon)
    return [f"{topic} {'is made' if made else 'is there already'}", *_words(found)]


def _check(args: argparse.Namespace, broker: Broker) -> list[str]:
    from sotto.topicadmin import connected
    from sotto.topics import ReportTopic

    topic = ReportTopic.parse(args.topic)
    horizon = _horizon(args.plan, topic)
    with connected(broker) as topics:
        return [f"{topic} can be used", *_words(topics.check(topic, horizon))]


def _list(args: argparse.Namespace, broker: Broker) -> list[str]:
    from sotto.topicadmin import connected

    with connected(broker) as topics:
        epochs = topics.epochs(args.name)
    if not epochs:
        raise BrokerError(f"there is no topic of reports called {args.name!r}")
    rows = [(str(topic), str(topic.epoch), str(topic.partitions)) for topic in epochs]
    return table(["topic", "epoch", "partitions"], rows)


def _horizon(paths: list[Path], topic: ReportTopic) -> int:
    """Return for how long plans accept reports of an event, in milliseconds."""
    plans = [_plan(path) for path in paths]
    for plan, path in zip(plans, paths, strict=True):
        if plan.shards < topic.partitions:
            raise ParameterError(
                f"{path} has {plan.shards} shards: of {topic.partitions} partitions some would "
                f"stay empty; take at most {plan.shards}"
            )
    return max(plan.horizon for plan in plans)


def _plan(path: Path) -> CompiledPlan:
    if path.suffix == ".json":
        from sotto.compiled import CompiledPlan

        return CompiledPlan.from_json(path.read_bytes())
    from sotto.plan import load_plan

    return load_plan(path).compile()


def _words(found: FoundTopic) -> list[str]:
    retention = int(found.settings["retention.ms"])
    stays = "for ever" if retention < 0 else duration_text(retention)
    return [f"partitions {found.partitions}, replicas {found.replicas}, records stay {stays}"]
