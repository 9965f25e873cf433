"""Show results in a browser: metrics, windows, intervals, plans, the health of the data.

Reads what a job has left, the database of results and the plans, and changes none of it. It may
be started before the job, which need not have run: pages show results as they come. Of the state
directory of sotto aggregate it knows all; of a database alone, as sotto sink writes it, the plans
have to be given. Programs find the same figures at /api/v1. With --alerts it looks for figures
that move, too, keeps what it finds in a file, and tells who should know (sotto alerts --help).

The page listens on loopback, for whoever is on this machine. Elsewhere, and with --site, it asks
for a token, which a browser gives in a form and a program as Authorization: Bearer TOKEN. Without
--token-file one is made and printed. --public asks for none, and shows estimates, intervals and
plans alone: not what was rejected, what pseudonyms have spent, or how the job is.

examples:
  sotto serve --state build/state
      http://127.0.0.1:8480/, until interrupted
  sotto serve --state build/state --database postgresql+psycopg://localhost/sotto
      where the job has a database of its own
  sotto serve --database postgresql+psycopg://localhost/sotto --plan plan.yaml
      of a streaming job, whose results sotto sink writes
  sotto serve --state build/state --site results.example --token-file token.txt
      behind a proxy of that name, on this machine
  sotto serve --state build/state --site results.example --public
      for everybody: estimates and plans alone
  sotto serve --state build/state --log build/log
      also say what is not counted yet, and what is wrong with the job
  sotto serve --state build/state --kafka localhost:9092 --topic reports-e1-p8
      likewise of a job that reads a topic, and which partitions are silent
  sotto serve --state build/state --alerts alerts.yaml
      also look for figures that move, show them, and tell who should know
"""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from sotto.errors import ParameterError
from sotto.plan.files import plans_of
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.alerts.watch import AlertWatch
    from pipelines.exporter.lag import Watched, WatchedStream
    from pipelines.results.reader import ResultsReader
    from pipelines.web.access import Access
    from pipelines.web.watching import JobWatch


PORT = 8480
#: Seconds between two looks at whether results have changed, or alerts are to be sent again.
LOOK = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    add_results(parser)
    lag = "of the job, to show what it has not read"
    where = parser.add_mutually_exclusive_group()
    options.add(where, "--log DIR", lag)
    options.add_broker(where, lag, lag)
    add("--topic NAME", "of the job; again for its other epochs", [], action="append")
    options.add_listen(parser, PORT)
    add("--site NAME", "the name under which a proxy on this machine serves the page")
    add("--token-file FILE", "a token of 20 characters or more; made and printed if left out")
    add("--public", "ask for no token, and show only what is meant for the public")
    what = "watch figures, and tell who should know when they move (YAML): sotto alerts --help"
    options.add_alerts(parser, what)


def add_results(parser: argparse.ArgumentParser) -> None:
    """Declare where results and plans are: ``--state``, ``--database``, ``--plan``."""
    add = partial(options.add, parser)
    add("--state DIR", "of sotto aggregate")
    add("--database URL", "default: results.db in the state directory (SQLite)")
    options.add_plans(parser, "where no state directory has the plans", required=False)


def reader_of(args: argparse.Namespace) -> ResultsReader:
    """Return the reader of the results that the arguments name."""
    from pipelines.results.reader import ResultsReader
    from pipelines.sinks.sql import of_state

    if args.state is None and args.database is None:
        raise ParameterError("--state or --database must say where the results are")
    if args.state is not None and args.plan:
        raise ParameterError("--plan is for a database without --state, which has the plans")
    plans = plans_of(args.plan)[0]
    return ResultsReader(args.database or of_state(args.state), args.state, plans)


def run(args: argparse.Namespace) -> int:
    from pipelines.collector.limits import Limits
    from pipelines.http.server import serve
    from pipelines.results.api import create_router
    from pipelines.web import charts
    from pipelines.web.application import HEADERS, Site, application

    options.quiet_libraries()
    charts.warm_up()
    access, made = _access(args)
    reader = reader_of(args)
    watch = None if args.alerts is None else options.alerts_of(args, reader)
    job_watch = _job_watch(args, reader)
    if args.state is not None and not os.path.isdir(args.state):
        options.warn(f"{args.state} is no folder yet: pages stay empty until a job makes it")
    site = Site(reader, access, args.state, watch, job_watch)
    app = application(site, [create_router(reader, public=access.public)], options.warn)

    def ready(url: str) -> None:
        print(f"{url}/", flush=True)
        if made:
            print(f"token: {access.token}", flush=True)

    with _watching("job", job_watch), _watching("alerts", watch):
        serve(
            app,
            args.listen,
            args.port,
            Limits.connections,
            ready,
            options.warn,
            HEADERS,
            behind_proxy=args.behind_proxy,
        )
    return 0


def _job_watch(args: argparse.Namespace, reader: ResultsReader) -> JobWatch:
    """Return what looks at the job: its state, its disks, and what it reads if that is said."""
    from pipelines.exporter.lag import WatchedLog, WatchedStream, WatchedTopics
    from pipelines.sources.kafka import KafkaTopics
    from pipelines.web.watching import JobWatch

    if bool(args.topic) != bool(args.kafka or args.broker):
        raise ParameterError("--topic goes with --kafka or --broker, and they with it")
    if args.log is not None and args.state is None:
        raise ParameterError("--log goes with --state: a streaming job reads --topic")
    log: Watched | WatchedStream | None = None
    if args.log is not None:
        log = WatchedLog(args.log)
    elif args.topic:
        broker, topics = options.broker_of(args), options.topics_of(args.topic)
        if len({topic.name for topic in topics}) != 1:
            raise ParameterError("--topic must name epochs of one name")
        if args.state is None:
            log = WatchedStream(broker, topics)
        else:
            log = WatchedTopics(KafkaTopics(broker, topics))
    database = None if reader.file is None else reader.file.absolute().parent
    places = {"state": args.state, "log": args.log, "database": database}
    return JobWatch(reader, args.state, log, {name: p for name, p in places.items() if p})


@contextmanager
def _watching(what: str, watch: AlertWatch | JobWatch | None) -> Iterator[None]:
    """Let a watch look as long as the block runs, if there is one."""
    if watch is None:
        yield
        return
    stopped = threading.Event()
    # What is being sent when the server ends is sent again by the next one.
    thread = threading.Thread(target=watch.run, args=(stopped, LOOK), name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=1)


def _access(args: argparse.Namespace) -> tuple[Access, bool]:
    """Return who may see the page, and whether a token was made for that."""
    from pipelines.http.server import is_loopback
    from pipelines.web.access import LOOPBACK, Access, new_token, token_of

    secure = args.site is not None
    local = is_loopback(args.listen)
    hosts = (*LOOPBACK, *([args.site.lower()] if args.site else [])) if local else ()
    if args.public:
        if args.token_file is not None:
            raise ParameterError("--public asks for no token: leave out --token-file")
        return Access(None, True, hosts, secure), False
    token = None if args.token_file is None else token_of(args.token_file)
    if token is None and local and args.site is None:
        return Access(None, False, hosts, secure), False
    return Access(token or new_token(), False, hosts, secure), not token
