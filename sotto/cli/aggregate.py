"""Count the reports in a log and estimate from them.

Everything in the log up to its end of now is taken, in bounded drains that are each committed
whole: a process that is killed loses nothing and counts nothing twice when it is started again.
Reports that are not acceptable go to quarantine, with a reason. State, counts and quarantine are
in the state directory; estimates are in a SQL database, which can always be made again from it.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.errors import ParameterError

if TYPE_CHECKING:
    from pipelines.drain import DrainResult, Progress
    from sotto.compiled import CompiledPlan

HELP = "count the reports in a log and estimate from them"

_EXAMPLES = """\
examples:
  sotto aggregate --plan plan.yaml --log build/log --state build/state
      drain the log; estimates are then in build/state/results.db
  sotto aggregate --plan v1.json --plan v2.yaml --log build/log --state build/state --follow
      all versions of a plan whose reports the log holds; go on until interrupted
  sotto aggregate ... --as-of 2013-06-01
      only what had arrived by then

An interrupt (or SIGTERM) ends the command after the drain that is under way, a second one at
once; neither loses anything.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sotto aggregate``."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "--plan",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="a plan (YAML), or a compiled one (.json); all that have ever been used",
    )
    add("--log", type=Path, required=True, metavar="DIR", help="the log")
    add("--state", type=Path, required=True, metavar="DIR", help="where state and results are kept")
    add("--database", metavar="URL", help="default: results.db in the state directory (SQLite)")
    add("--follow", action="store_true", help="go on with what is appended, until interrupted")
    add("--every", default="10s", metavar="DURATION", help="how often to look (default: 10s)")
    add("--as-of", metavar="TIME", help="take only what was appended up to then")
    add(
        "--max-reports",
        type=int,
        default=1_000_000,
        metavar="N",
        help="reports in one drain at most, which bounds memory (default: 1000000)",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``sotto aggregate`` and return its exit status."""
    from sotto.durations import parse_duration

    seconds = parse_duration(args.every) / 1000
    as_of = None if args.as_of is None else _moment(args.as_of)
    loaded = [_load(path) for path in args.plan]
    plans = [plan for plan, _ in loaded]
    candidates = {plan.fingerprint: strings for plan, strings in loaded}
    _quiet_beam()
    from pipelines.drain import drain
    from pipelines.memory import keep_freed_memory

    keep_freed_memory()

    def once(progress: Progress) -> DrainResult:
        return drain(
            args.log,
            args.state,
            plans,
            args.database,
            as_of=as_of,
            max_reports=args.max_reports,
            progress=progress,
            candidates=candidates,
            stop=stopped.is_set,
        )

    with _stopping() as stopped:
        if args.follow:
            _follow(once, stopped, seconds)
            return 0
        with _bar() as progress:
            result = once(progress)
        print("\n".join(summary(result)))
        return 130 if stopped.is_set() else 0


def _follow(
    once: Callable[[Progress], DrainResult], stopped: threading.Event, seconds: float
) -> None:
    from pipelines.results import ProjectionError

    ahead: tuple[str, ...] = ()
    while not stopped.is_set():
        try:
            with _bar() as progress:
                result = once(progress)
        except ProjectionError as error:
            print(f"sotto: error: {error}; it is tried again", file=sys.stderr, flush=True)
            stopped.wait(seconds)
            continue
        if result.drains or result.ahead != ahead:
            ahead = result.ahead
            print("\n".join(summary(result)), flush=True)
        stopped.wait(seconds)


def summary(result: DrainResult) -> list[str]:
    """Return what draining came to, in lines."""
    tally, rejected = result.tally, sum(result.rejects.values())
    rate = tally.reports / result.seconds if result.seconds else 0.0
    lines = [
        f"generation {result.generation}: {tally.reports:,} reports, {result.size / 1e6:,.1f} MB, "
        f"{result.drains} drains, {result.seconds:.1f} s, {rate:,.0f} reports a second",
    ]
    left = [
        f"lane {lane} has records from the future, which are left, with all that follow them"
        for lane in result.ahead
    ]
    if not result.drains:
        return [f"generation {result.generation}: nothing new in the log", *left]
    numbers = {
        "counted": tally.counted,
        "superseded by a newer rung": tally.superseded,
        "duplicates": tally.duplicates,
        "in quarantine": rejected,
        **{f"  {reason}": number for reason, number in result.rejects.items()},
        "pseudonyms revoked": tally.revoked,
    }
    return lines + [f"{number:>15,}  {what}" for what, number in numbers.items()] + left


def _load(path: Path) -> tuple[CompiledPlan, dict[str, tuple[str, ...]]]:
    """Return a plan, compiled, and the candidates of its string metrics."""
    if path.suffix == ".json":
        from sotto.compiled import CompiledPlan

        return CompiledPlan.from_json(path.read_bytes()), {}
    from sotto.plan import load_plan

    plan = load_plan(path)
    return plan.compile(), dict(plan.candidates)


def _moment(text: str) -> int:
    from sotto.cli.recordings import milliseconds

    time = milliseconds(text)
    if not isinstance(time, int):
        raise ParameterError(f"--as-of {text!r} must be a time such as 2013-06-01T12:00Z")
    return time


def _quiet_beam() -> None:
    """Keep Beam's notices off the terminal; what goes wrong is raised, and told by the command."""
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Let the first interrupt or SIGTERM set an event and the next one end the process."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bar() -> Iterator[Progress]:
    """Show on standard error, if that is a terminal, how much of the log is taken."""
    from tqdm import tqdm

    with tqdm(
        unit="B", unit_scale=True, desc="aggregate", disable=None, file=sys.stderr, leave=False
    ) as bar:

        def show(taken: int, total: int) -> None:
            bar.total = total
            bar.update(taken - bar.n)

        yield show
