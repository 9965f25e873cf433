"""A job on all cores that says how long its pieces take: ``python -m examples.apps.job``.

Children of ``multiprocessing`` end without a farewell, however they were started. They lose
nothing by that: they only record, into the state file, from which the parent, or the next run,
sends what is due.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path

from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics

_metrics: Metrics


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all pieces, in processes."""
    parser = argparse.ArgumentParser(prog="python -m examples.apps.job", description=__doc__)
    parser.add_argument("--start", choices=["fork", "spawn"], default="spawn")
    parser.add_argument("--pieces", type=int, default=40)
    args = parser.parse_args(arguments)
    folder = home()
    with make_client(folder, background=False) as client:
        context = multiprocessing.get_context(args.start)
        with context.Pool(2, _begin, [folder]) as pool:
            total = sum(pool.map(_work, range(args.pieces)))
        client.flush(timeout=1.0)
    print(f"{args.pieces} pieces: {total}")
    return 0


def _begin(folder: Path) -> None:
    global _metrics
    _metrics = Metrics(make_client(folder, background=False))


def _work(piece: int) -> int:
    started = time.perf_counter()
    result = sum(number * number for number in range(piece * 100))
    _metrics.job_seconds.record(time.perf_counter() - started)
    return result


if __name__ == "__main__":
    raise SystemExit(main())
