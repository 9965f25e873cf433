"""Show results in a browser: metrics, windows, intervals, plans, the health of the data.

Reads what a job has left, the database of results and the plans, and changes none of it. It may
be started before the job, which need not have run: pages show results as they come. It knows all of
the state directory of sotto aggregate; of a database alone, as sotto sink writes it, the plans have
to be given. Programs find the same figures at /api/v1. With --alerts it looks for figures that
move, too, keeps what it finds in a file, and tells who should know (sotto alerts --help).

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
  sotto serve --state build/state --boards boards.yaml --notes notes.yaml
      also pages of several charts, and releases marked on the axes
  sotto serve --state build/state --alerts
      also look for figures that move, and show them
  sotto serve --state build/state --alerts alerts.yaml
      likewise, as the file says, and tell who should know
"""

from __future__ import annotations

import argparse
import gc
import os
from functools import partial
from typing import TYPE_CHECKING

from sotto.errors import ParameterError
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.exporter.lag import Watched, WatchedStream
    from pipelines.results.reader import ResultsReader
    from pipelines.web.watching import JobWatch

PORT = 8480


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    options.add_results(parser)
    lag = "of the job, to show what it has not read"
    where = parser.add_mutually_exclusive_group()
    options.add(where, "--log DIR", lag)
    options.add_broker(where, lag, lag)
    add("--topic NAME", "of the job; again for its other epochs", [], action="append")
    options.add_listen(parser, PORT)
    add("--site NAME", "the name under which a proxy on this machine serves the page")
    add("--token-file FILE", "a token of 20 characters or more; made and printed if left out")
    add("--boards FILE", "pages of several charts, and who may embed charts (YAML)")
    add("--notes FILE", "releases and other notes to mark on axes; the API adds to it (YAML)")
    add("--public", "ask for no token, and show only what is meant for the public")
    what = "watch figures, and tell who should know when they move (YAML): sotto alerts --help"
    options.add_alerts(parser, what)


def run(args: argparse.Namespace) -> None:
    from pipelines.collector.limits import Limits
    from pipelines.http.server import listen, serve
    from pipelines.results.api import create_router
    from pipelines.results.notes import Notes
    from pipelines.web import charts
    from pipelines.web.access import access_of
    from pipelines.web.application import HEADERS, Site, application
    from pipelines.web.boards import load_boards
    from pipelines.web.watching import looking

    options.quiet_libraries()
    charts.warm_up()
    # Collections amid a page pass over what is loaded by now, which stays to the end.
    gc.freeze()
    access, made = access_of(args.listen, args.site, args.token_file, public=args.public)
    reader = options.reader_of(args)
    watch = None if args.alerts is None else options.alerts_of(args, reader)
    job_watch = _job_watch(args, reader)
    if args.state is not None and not os.path.isdir(args.state):
        options.warn(
            f"--state expects the folder of a job; got {args.state}, which is none: pages stay "
            "empty until a job makes it; if none will, give another"
        )
    boards = load_boards(args.boards, options.warn)
    notes = None if args.notes is None else Notes(args.notes)
    if notes is not None:
        notes.read()
    site = Site(reader, access, args.state, watch, job_watch, boards, notes)
    router = create_router(reader, public=access.public, notes=notes)
    app = application(site, [router], options.warn)

    def ready(url: str) -> None:
        print(f"{url}/", flush=True)
        if made:
            print(f"token: {access.token}", flush=True)

    listening = listen(args.listen, args.port, behind_proxy=args.behind_proxy)
    with listening, looking(job_watch), looking(watch):
        serve(app, args.listen, listening, Limits.connections, ready, options.warn, HEADERS)


def _job_watch(args: argparse.Namespace, reader: ResultsReader) -> JobWatch:
    """Return what looks at the job: its state, its disks, and what it reads if that is said."""
    from pipelines.exporter.lag import WatchedLog, WatchedStream, WatchedTopics
    from pipelines.sources.kafka import KafkaTopics
    from pipelines.web.watching import JobWatch

    options.check_watched(args)
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
