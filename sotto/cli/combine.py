"""Add up what the processes have counted that share a topic, and estimate from it.

Each of them drains its share of the partitions into a state directory of its own
(sotto aggregate --share). Here all these directories are read, while they are drained or not, and
the results of all go to one database, as one process would have written them that took the whole
topic. The database can always be made again. With --publish they go from there to a topic of
estimates too, to which the shares themselves publish nothing.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.cli import given, publishing
from sotto.cli.aggregate import stopping

if TYPE_CHECKING:
    from pipelines.combine import Combined

HELP = "add up what processes have counted that share a topic"

_EXAMPLES = """\
examples:
  sotto aggregate ... --topic reports-e1-p8 --share 1/2 --state state-1 --follow
  sotto aggregate ... --topic reports-e1-p8 --share 2/2 --state state-2 --follow
  sotto combine --plan plan.yaml --state state-1 --state state-2 --database URL --follow
      two processes that drain a topic, and one that keeps the database of their results
  sotto combine ... --publish reports-estimates --publish-broker client.json --follow
      publish them to a compacted topic, which sotto sink takes to other databases

Where the topic cannot be reached, that is told, and tried again at the next look. One process
publishes the results of a topic's shares.

An interrupt (or SIGTERM) ends the command after what is under way.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sotto combine``."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    given.add_plans(parser, "all that any share was drained with")
    add(
        "--state",
        type=Path,
        action="append",
        required=True,
        metavar="DIR",
        help="the state directory of a share; again for every other one",
    )
    add("--database", required=True, metavar="URL", help="where the results go, as of SQLAlchemy")
    publishing.add_estimates(parser, "required with --publish")
    add("--follow", action="store_true", help="go on with what is committed, until interrupted")
    add("--every", default="10s", metavar="DURATION", help="how often to look (default: 10s)")


def run(args: argparse.Namespace) -> int:
    """Run ``sotto combine`` and return its exit status."""
    from pipelines.combine import combine
    from sotto.durations import parse_duration

    seconds = parse_duration(args.every) / 1000
    plans, candidates = given.plans_of(args.plan)
    publish = publishing.combined_of(args)

    def once() -> Combined:
        return combine(args.state, plans, args.database, candidates, publish)

    if not args.follow:
        found = once()
        print(summary(found), flush=True)
        if found.unpublished:
            publishing.tell(found)
            return 2
        return 0
    with stopping() as stopped:
        _follow(once, stopped, seconds)
    return 0


def _follow(once: Callable[[], Combined], stopped: threading.Event, seconds: float) -> None:
    from pipelines.results import ProjectionError

    while not stopped.is_set():
        try:
            found = once()
        except ProjectionError as error:
            print(f"sotto: error: {error}; it is tried again", file=sys.stderr, flush=True)
        else:
            if found.changed:
                print(summary(found), flush=True)
            if found.unpublished:
                publishing.tell(found, "; it is tried again")
        stopped.wait(seconds)


def summary(found: Combined) -> str:
    """Return what combining came to, in a line."""
    shares = ", ".join(map(str, found.generations))
    what = f"{found.windows:,} windows estimated" if found.changed else "nothing new"
    return f"generation {found.generation} (shares: {shares}): {what}"
