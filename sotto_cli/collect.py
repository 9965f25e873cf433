"""Take reports over HTTP, and write them to the embedded log or to Kafka.

Devices post messages to /v1/reports and are answered once these are durable; what a plan says is
served at /v1/plans/COLLECTOR, and the interface is described at /openapi.json. Plan files that
are put into the folder --plans, and keys, are read again within seconds.

No address, header, cookie or user agent is logged or kept. Messages that arrive within --hold are
written together, in random order. The service speaks plain HTTP and listens on loopback. In public
a proxy in front of it ends TLS and cuts off slow clients: Caddy does with deploy/caddy/Caddyfile;
for one on another machine, or in a container of its own, give --listen and --behind-proxy.

examples:
  sotto collect --plan plan.yaml --log build/log
      http://127.0.0.1:8470/v1/reports, until interrupted; sotto aggregate --log build/log counts
  sotto collect --plan plan.yaml --kafka localhost:9092 --topic reports-e1-p8
      write to a topic
  sotto collect --keys keys.json --new-key myapp
      print a new key for an app, note its hash in keys.json, and exit
  sotto collect --plan plan.yaml --log build/log --keys keys.json
      take requests with such a key only; the file is read again when it changes
"""

from __future__ import annotations

import argparse
import re
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sotto.errors import ParameterError
from sotto_cli import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelines.collector.stores import MessageStore


PORT = 8470


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    options.add_plans(parser, "whose reports are taken", required=False)
    add("--plans DIR", "a folder of such files, read again every few seconds")
    where = parser.add_mutually_exclusive_group()
    options.add(where, "--log")
    options.add_broker(where)
    add("--topic NAME", "the topic of reports to write to, by its full name")
    add("--name NAME", "partition of the log that it alone writes", "collector")
    add("--keys FILE", "hashes of app keys; without it no key is asked for")
    add("--new-key APP", "make a key for an app, print it once, and exit")
    add("--drop-key KEY", "remove a key from the file, and exit")
    options.add_listen(parser, PORT)
    origins = "web pages that may send, such as https://app.example; without it all may"
    add("--origin ORIGIN", origins, [], action="append")
    hold = "for how long messages are gathered before they are written"
    add("--hold SECONDS", hold, 0.01, type=options.few_seconds)
    add("--rate N", "requests a second of one app, on average", 1000.0, type=options.above_zero)


def run(args: argparse.Namespace) -> None:
    from pipelines.collector import keys

    if args.new_key is not None or args.drop_key is not None:
        if args.keys is None:
            raise ParameterError("--new-key and --drop-key need --keys, the file to change")
        if args.new_key is not None:
            print(keys.new_key(args.keys, args.new_key))
        else:
            print(f"removed a key of {keys.drop_key(args.keys, args.drop_key)}")
        return
    _serve(args)


def _serve(args: argparse.Namespace) -> None:
    from pipelines.collector.application import HEADERS, application
    from pipelines.collector.commits import GroupCommit
    from pipelines.collector.keys import AppKeys
    from pipelines.collector.limits import Limits
    from pipelines.collector.plans import PlanFiles
    from pipelines.http.server import listen, possible_connections, serve

    options.quiet_libraries()
    for origin in args.origin:
        if not re.fullmatch(r"https?://[^/?#\s]+", origin):
            raise ParameterError(f"--origin {origin} must be such as https://app.example")
    if not args.plan and args.plans is None:
        raise ParameterError("--plan or --plans must say whose reports are taken")
    keys = None if args.keys is None else AppKeys(args.keys, options.warn)
    plans = PlanFiles(args.plan, args.plans, options.warn)
    limits = Limits(requests_per_second=args.rate, burst=max(1, int(2 * args.rate)))
    limits = replace(limits, connections=possible_connections(limits.connections))

    def ready(url: str) -> None:
        print(f"{url}/v1/reports", flush=True)

    open_store = _store(args)
    # No log is made if this refuses.
    listening = listen(args.listen, args.port, behind_proxy=args.behind_proxy)
    with listening, closing(open_store()) as store:
        commits = GroupCommit(store, args.hold, options.warn)
        origins = args.origin or ("*",)
        app = application(commits, lambda: plans.known, keys, limits, origins, options.warn)
        serve(
            app,
            args.listen,
            listening,
            limits.connections,
            ready,
            options.warn,
            HEADERS,
            [each.reload for each in (keys, plans) if each is not None],
        )


def _store(args: argparse.Namespace) -> Callable[[], MessageStore]:
    """Return what opens the store that the options name."""
    from pipelines.collector.stores import KafkaStore, LogStore

    if args.log is not None:
        return partial(LogStore, args.log, args.name, warn=options.warn)
    if args.kafka is None and args.broker is None:
        raise ParameterError("--log, --kafka or --broker must say where reports go")
    return partial(KafkaStore, options.broker_of(args), options.topics_of(args.topic)[0])
