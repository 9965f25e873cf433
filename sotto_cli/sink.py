"""Write a topic of estimates to a database, or to another sink.

Aggregation runs (sotto aggregate --publish) and streaming jobs publish what they estimate to a
compacted topic, such as reports-estimates. This writes it to SQLite or PostgreSQL: the tables that
sotto estimates, sotto exporter and SQL clients read. How far the topic is written is kept in the
database, in the same transactions: the command may be killed at any moment, and goes on when it is
started again. One sink writes to a database.

A DuckDB file has the same results for analysis, and kafka://HOST:PORT/NAME-estimates is a copy of
the topic elsewhere. These two take the topic from its beginning whenever the command is started;
what they have already stays as it is.

A newer revision replaces an older one, never the other way round. Records that are no documents
are counted and left. The results are those of one job, the first in the topic; another
job's documents are counted, and come in their place with --replace.

examples:
  sotto sink --topic reports-estimates --kafka localhost:9092 --database sqlite:///results.db
      take all there is, and end
  sotto sink --topic reports-estimates --broker client.json \\
      --database postgresql+psycopg://sotto@db.example/sotto --follow
      go on until interrupted; the password is best in PGPASSFILE
  sotto sink --topic reports-estimates --kafka localhost:9092 --database duckdb:///results.duckdb
      bring a DuckDB file up to date
  sotto sink ... --replace
      the topic was made again, or the job began anew: forget what the database holds

client.json is what sotto topics takes. PostgreSQL needs pip install 'sottovoce-tools[postgres]',
DuckDB pip install 'sottovoce-tools[duckdb]'.
"""

from __future__ import annotations

import argparse
from functools import partial

from sotto_cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    options.add_broker(parser.add_mutually_exclusive_group(required=True))
    add("--topic NAME", "a topic of estimates, by its full name", required=True)
    add("--database URL", "sqlite:///FILE, postgresql+psycopg://… or duckdb:///FILE", required=True)
    add("--follow")
    add("--every DURATION", "how often to look", "1s", type=options.interval)
    add("--replace", "put another topic's or job's results in the place of those in the database")


def run(args: argparse.Namespace) -> int:
    from pipelines.sinks.registry import open_sink
    from pipelines.sinks.transfer import Transfer
    from sotto.errors import SottoError
    from sotto.kafka.topics import SinkTopic

    topic = SinkTopic.parse(args.topic)
    broker = options.broker_of(args)
    begun = False

    def once() -> None:
        nonlocal begun
        done = transfer.run(stopped.is_set)
        if done.records or done.lost or not begun:
            print("\n".join(done.lines()), flush=True)
        begun = True

    with (
        options.stopping() as stopped,
        open_sink(args.database) as sink,
        Transfer(broker, topic, sink, replace=args.replace) as transfer,
    ):
        if args.follow:
            options.follow(once, stopped, args.every / 1000, at_start=SottoError)
            return 0
        once()
        return options.stopped_status(stopped)
