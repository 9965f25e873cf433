"""Make and check the topics that reports are sent to, and those beside them.

A topic's name has its epoch and its partitions, such as reports-e1-p8; it is what publishers and
aggregators are given. A device's messages all go to one partition, so the number never changes: a
new number is a new epoch, once the old topic is aggregated.

With --sinks the topics beside them are made or checked too, which all epochs share:
reports-estimates takes what runs and jobs publish (compacted: the newest of each window),
reports-quarantine what was rejected, for as long as the plans keep that, and reports-requeue what
an operator gives back; only operators may write to it.

With --devices, --aggregators, --readers and --operators, each a principal of the cluster, create
also sets ACLs: devices may write reports and read nothing, aggregators do their work, readers read
estimates, operators requeue. Sotto takes no right away: what others have allowed stays.

examples:
  sotto topics create reports --partitions 8 --plan plan.json --broker client.json
      make reports-e1-p8 with append times, and a retention that covers the plan
  sotto topics check reports-e1-p8 --plan plan.json --kafka localhost:9092
      print what keeps it from being used, and what to do
  sotto topics create reports --partitions 8 --sinks --plan plan.json --broker client.json
      that, reports-estimates, reports-quarantine and reports-requeue
  sotto topics create reports --partitions 8 --sinks --plan plan.json --broker admin.json \\
      --devices User:devices --aggregators User:aggregator --readers User:reader
      that, and who may do what with them
  sotto topics list reports --kafka localhost:9092
      its epochs

client.json says how to reach a broker: {"servers": "host:port,host:port", "ca": "authority.pem",
"user": "fleet", "password_file": "password"}; all but servers may be left out.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.columns import table
from sotto.errors import BrokerError, ParameterError
from sotto.kafka.access import ROLES, grants
from sotto.plan.durations import UNITS, duration_text
from sotto.plan.files import plans_of
from sotto_cli import options

if TYPE_CHECKING:
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import FoundTopic, ReportTopic, SinkTopic, Stay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make a topic, or check the one that is there")
    check = actions.add_parser("check", help="check a topic against plans")
    listing = actions.add_parser("list", help="show the epochs of a name")
    create.add_argument("name", help="without epoch and partitions")
    check.add_argument("topic", help="the full name, such as reports-e1-p8")
    listing.add_argument("name", help="without epoch and partitions")
    add = partial(options.add, create)
    add("--partitions P", "never to be changed", type=int, required=True)
    add("--epoch N", "counts the changes of that number", 1, type=int)
    add("--replicas N", "brokers that keep it", 1, type=int)
    add("--retention DURATION", "default: what the plans need")
    for role in ROLES:
        add(f"--{role} PRINCIPAL", f"the principal of {role}, such as User:{role}")
    for action in (create, check):
        options.add_plans(action, "all whose reports it takes")
        options.add(action, "--sinks", "also the topics of estimates, quarantine, requeue")
    for action in (create, check, listing):
        options.add_broker(action.add_mutually_exclusive_group(required=True))


def run(args: argparse.Namespace) -> None:
    broker = options.broker_of(args)
    lines = {"create": _create, "check": _check, "list": _list}[args.action](args, broker)
    print("\n".join(lines))


def _create(args: argparse.Namespace, broker: Broker) -> list[str]:
    from sotto.kafka.admin import connected
    from sotto.kafka.topics import ReportTopic

    topic = ReportTopic(args.name, args.epoch, args.partitions)
    stay = _stay(args.plan, topic)
    retention = stay.horizon if args.retention is None else args.retention
    if retention < stay.horizon:
        raise ParameterError(
            f"--retention {duration_text(retention)} is shorter than the plans accept reports for: "
            f"give at least {duration_text(stay.horizon)}"
        )
    principals = {role: who for role in ROLES if (who := getattr(args, role)) is not None}
    wanted = grants(topic, principals, sinks=args.sinks)
    with connected(broker) as topics:
        made = topics.create(topic, args.replicas, retention)
        lines = [_made(topic, made), *_words(topics.check(topic, stay.horizon))]
        for sink in _sinks(args, topic):
            partitions = 1 if sink.kind == "estimates" else topic.partitions
            made = topics.create_sink(sink, partitions, args.replicas, stay)
            lines += [_made(sink, made), *_words(topics.check_sink(sink, stay))]
        if wanted:
            topics.allow(wanted)
    return [*lines, *(f"{who} may do what {role} do" for role, who in principals.items())]


def _check(args: argparse.Namespace, broker: Broker) -> list[str]:
    from sotto.kafka.admin import connected
    from sotto.kafka.topics import ReportTopic

    topic = ReportTopic.parse(args.topic)
    stay = _stay(args.plan, topic)
    with connected(broker) as topics:
        lines = [f"{topic} can be used", *_words(topics.check(topic, stay.horizon))]
        for sink in _sinks(args, topic):
            lines += [f"{sink} can be used", *_words(topics.check_sink(sink, stay))]
    return lines


def _list(args: argparse.Namespace, broker: Broker) -> list[str]:
    from sotto.kafka.admin import connected

    with connected(broker) as topics:
        epochs = topics.epochs(args.name)
    if not epochs:
        raise BrokerError(f"there is no topic of reports called {args.name!r}")
    rows = [(str(topic), str(topic.epoch), str(topic.partitions)) for topic in epochs]
    return table(["topic", "epoch", "partitions"], rows)


def _sinks(args: argparse.Namespace, topic: ReportTopic) -> list[SinkTopic]:
    from sotto.kafka.topics import KINDS, SinkTopic

    return [SinkTopic(topic.name, kind) for kind in KINDS] if args.sinks else []


def _made(topic: object, made: bool) -> str:
    return f"{topic} {'is made' if made else 'is there already'}"


def _stay(paths: list[Path], topic: ReportTopic) -> Stay:
    """Return how long plans, of no fewer shards than the topic has partitions, have things stay."""
    from sotto.kafka.topics import Stay

    plans, _ = plans_of(paths)
    for plan, path in zip(plans, paths, strict=True):
        if plan.shards < topic.partitions:
            raise ParameterError(
                f"{path} has {plan.shards} shards: of {topic.partitions} partitions some would "
                f"stay empty; take at most {plan.shards}"
            )
    return Stay(max(plan.horizon for plan in plans), min(plan.retention for plan in plans))


def _words(found: FoundTopic) -> list[str]:
    if found.settings["cleanup.policy"] == "compact":
        return [f"partitions {found.partitions}, replicas {found.replicas}, the newest stays"]
    retention = int(found.settings["retention.ms"])
    day, hour = retention % UNITS["d"], retention % UNITS["h"]
    parts = filter(None, (retention - day, day - hour, hour))
    stays = "for ever" if retention < 0 else " ".join(map(duration_text, parts)) or duration_text(0)
    return [f"partitions {found.partitions}, replicas {found.replicas}, records stay {stays}"]
