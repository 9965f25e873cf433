"""Copy a state directory to one file, beside runs.

A run holds the directory for its whole time; a backup waits for it, and holds it only as long as
it takes to link the files. The file is a tar archive, checked before it has its name. It has what
sotto restore needs: what is committed, with plans. It has not: results, which are made again; the
run under way, which is done again; the log.

It holds pseudonyms and what they reported, as the state directory does: keep it where you would
keep that, and no longer than the plans' horizon, after which it is of no use.

examples:
  sotto backup --state build/state --out state-2026-06-01.tar
  sotto backup --check state-2026-06-01.tar
      whether a backup is whole, and what it has
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.clocks import minute
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.maintenance.backup import BackedUp


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    what = parser.add_mutually_exclusive_group(required=True)
    options.add(what, "--state")
    options.add(what, "--check FILE", "read a backup, and say whether it is whole")
    add("--out FILE", "where to write it; it must not exist")
    add("--wait")


def run(args: argparse.Namespace) -> None:
    options.quiet_libraries()
    from pipelines.maintenance.backup import backup, check
    from sotto.errors import ParameterError

    if args.check is not None:
        print(what_it_has(args.check, check(args.check)))
        return
    if args.out is None:
        raise ParameterError("--out is missing: where is the backup to be written?")
    with options.progress_bar("bytes", "backup") as progress:
        found = backup(args.state, args.out, progress, wait=args.wait / 1000)
    print(what_it_has(args.out, found))


def what_it_has(file: Path, found: BackedUp) -> str:
    """Return what a backup has, in a line."""
    until = "" if found.clock is None else f", reports up to {minute(found.clock)}"
    return (
        f"{file}: generation {found.generation}, {found.files:,} files, "
        f"{found.size / 1e6:,.1f} MB{until}"
    )
