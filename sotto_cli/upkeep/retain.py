"""Remove what is kept for no more use.

Every run removes by itself the states of closed budget periods, and quarantine whose retention is
over by the log's clock. This removes besides:
  segments of an embedded log (--log) that are counted and older than the plans' horizon, or than
  --keep; neither the last one of a partition nor the one by which it is known again
  quarantine whose retention is over by this machine's clock, where no report has come for long
  checkpoints of streaming jobs that have ended (--checkpoints, --flink): Flink keeps the last ones
  of each, with pseudonyms in them; one is needed until a job that runs has completed a later one

Files that a run, a requeue or an audit may need stay. A state directory that is restored from a
backup takes from the log what came since: --keep at least the age of the oldest backup that you
would restore. All jobs that read the log must have counted a segment: give a log to one state
directory.

sotto aggregate --follow --log-retention 60d does the first by itself. Topics remove by age on
their own: sotto topics check says what they must be set to.

examples:
  sotto retain --state build/state --log build/log --dry-run
      what would be removed
  sotto retain --state build/state --log build/log --keep 60d
  sotto retain --checkpoints build/flink/checkpoints --flink http://localhost:8081 --keep 7d
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.maintenance.retention import Removable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    add("--state")
    add("--log DIR", "of sotto aggregate: remove its old segments")
    add("--checkpoints DIR", "Flink's: remove those of jobs that have ended")
    add("--flink URL", "with --checkpoints: Flink's job manager, which knows what runs")
    add("--keep DURATION", "how long these stay; default: the plans' horizon, 7d for checkpoints")
    add("--database")
    add("--dry-run")
    add("--wait")


def run(args: argparse.Namespace) -> None:
    options.quiet_libraries()
    from pipelines.maintenance.retention import retain
    from sotto.errors import ParameterError

    if args.keep is not None and args.log is None and args.checkpoints is None:
        raise ParameterError("--keep goes with --log or --checkpoints")
    if (args.checkpoints is None) != (args.flink is None):
        raise ParameterError("--checkpoints and --flink go together")
    if args.state is None and args.checkpoints is None:
        raise ParameterError("--state or --checkpoints must say what may be removed")
    what = "would be removed" if args.dry_run else "removed"
    if args.checkpoints is not None:
        print("\n".join(_swept(args, what)))
    if args.state is None:
        return
    with options.progress_bar("bytes", "retain") as progress:
        found = retain(
            args.state,
            args.log,
            args.keep,
            args.database,
            progress,
            dry_run=args.dry_run,
            wait=args.wait / 1000,
        )
    print("\n".join(lines(found, what)))


def _swept(args: argparse.Namespace, what: str) -> list[str]:
    from pipelines.flink.rest import JobManager
    from pipelines.maintenance.checkpoints import KEEP, sweep_checkpoints

    keep = KEEP if args.keep is None else args.keep
    found = sweep_checkpoints(args.checkpoints, JobManager(args.flink), keep, dry_run=args.dry_run)
    number = f"{len(found.folders):,} ended jobs"
    return [*map(str, found.folders), f"checkpoints of {number} {what}, {found.size / 1e6:,.1f} MB"]


def lines(found: Removable, what: str) -> list[str]:
    """Return what is removed, in lines."""
    return [
        f"{len(found.segments):,} segments of the log {what}, {found.size / 1e6:,.1f} MB",
        f"{len(found.generations):,} files of quarantine {what}, {found.rejects:,} reports",
    ]
