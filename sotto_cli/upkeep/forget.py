"""Forget pseudonyms that a person hands in from his device.

The device shows the pseudonyms that it still has: sotto ledger app.db --full. What counts of one in
budget periods that are open is taken back, as if it had never reported: from the state, the counts,
and the bytes in quarantine. Later reports of it are rejected as 'forgotten'. Published results are
made without it once enough reports of their window have gone, which may be never.

It stays in sums of closed budget periods, in the log or topics until they remove by age, in backups
(sotto restore forgets it again) and in a streaming job's checkpoints: docs/operate/operations.md
says for how long. Read pseudonyms from a file or a pipe: command lines are seen by others on the
machine.

examples:
  sotto forget --state build/state --dry-run --file request.txt
      what there is of each; changes nothing
  sotto forget --state build/state --file - < request.txt
  sotto forget --state build/state --file request.txt --database postgresql+psycopg://db/sotto

Killed at any moment, it is finished by the next sotto forget, or sotto aggregate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.clocks import day
from sotto.columns import table
from sotto.errors import ParameterError
from sotto_cli import options

if TYPE_CHECKING:
    from pipelines.maintenance.forget import Held


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    add("--state", required=True)
    names = "pseudonyms, 32 hexadecimal digits a line; - for standard input"
    add("--file FILE", names, required=True, type=str)
    add("--database")
    add("--dry-run")
    add("--wait")


def run(args: argparse.Namespace) -> None:
    names = _read(args.file)
    options.quiet_libraries()
    from pipelines.maintenance.forget import forget, held

    if args.dry_run:
        print("\n".join(lines(held(args.state, names))))
        return
    before = held(args.state, names)
    generation = forget(args.state, names, args.database, wait=args.wait / 1000)
    print("\n".join(lines(before)))
    print(f"forgotten as of generation {generation}")
    print("they stay in the log or topic, in backups, and as sums of closed periods")


def _read(file: str) -> list[str]:
    given = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8", "replace")
    names = given.split()
    if not names:
        raise ParameterError("--file has no pseudonym in it")
    return names


def lines(found: Mapping[str, Held]) -> list[str]:
    """Return what a state directory has of pseudonyms, in lines, with their first 8 digits."""
    rows = []
    for name, held in found.items():
        periods = ", ".join(f"{day(each.period_start)}" for each in held.ledgers)
        counted = sum(line.counted is not None for each in held.ledgers for line in each.chains)
        remark = "forgotten already" if held.forgotten else "" if held.ledgers else "nothing open"
        rows.append((name[:8], periods or remark, f"{counted:,}", f"{held.quarantined:,}"))
    return table(["pseudonym", "period from", "reports that count", "in quarantine"], rows)
