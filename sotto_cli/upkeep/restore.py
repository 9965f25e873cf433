"""Make a state directory of a backup.

Runs go on from it where the backup was made, and take from the log or topics what has come since:
nothing is counted twice, since the offsets are in it. Only what the log or a topic has removed
since is lost; a run of a log reports it as corrupt_log, one of topics refuses to go on without
--accept-loss.

Use it in the place of the directory that is lost, never beside it. Results are made again by the
next run: in the directory's own database at once, in another one once --database has said that the
results there are to go. The next run says what to do if it publishes to topics.

A pseudonym that was forgotten since the backup was made is forgotten again, before the directory is
there: sotto forget and sotto backup note keyed hashes in STATE.forgotten, beside the state
directory. At another place, give that file with --forgotten; without it nothing is restored.
--forgotten none brings them back: then do sotto forget again.

examples:
  sotto restore state-2026-06-01.tar --state build/state
      build/state must not exist; then go on with sotto aggregate
  sotto restore state.tar --state /new/state --forgotten state.forgotten
      at another place: who was forgotten where the backup was made stays so
  sotto restore state.tar --state state --database postgresql+psycopg://localhost/sotto
      and have the results of this state directory there made again by the next run
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from sotto_cli import options
from sotto_cli.upkeep.backup import what_it_has


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="of sotto backup")
    add("--state DIR", "the directory to make; it must not exist", required=True)
    parser.add_argument(
        "--forgotten",
        metavar="FILE",
        help="who was forgotten, or none to bring them back; default: STATE.forgotten",
    )
    add("--database URL", "where the results of the lost directory are, if not in it")


def run(args: argparse.Namespace) -> None:
    options.quiet_libraries()
    from pipelines.maintenance.backup import restore
    from pipelines.maintenance.remembered import place_of
    from pipelines.sinks.sql import Results

    forgotten = None
    if args.forgotten != "none":
        forgotten = Path(args.forgotten or place_of(args.state))
    with options.progress_bar("bytes", "restore") as progress:
        found = restore(args.file, args.state, progress, forgotten=forgotten)
    print(what_it_has(args.file, found))
    if forgotten is None:
        print("who was forgotten since the backup was made is back: do sotto forget again")
    if args.database is not None:
        with Results(args.database) as results:
            gone = results.invalidate(found.state)
        print(f"results of {gone or 'no collector'} are made again by the next run")
