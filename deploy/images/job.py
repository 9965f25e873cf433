"""Keeps a streaming job submitted; its arguments are those of ``sotto stream``.

Flink restarts a job whose task manager or worker ended. A job whose job manager was started again
is forgotten there: this submits it then from the newest checkpoint or savepoint that it has left.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deploy.images.node import MANAGER, REST, SHARED
from sotto.cli import main as sotto

#: How often the job is looked at, in seconds.
EVERY = 10.0
_ENDED = {"FINISHED", "CANCELED", "FAILED"}


def ask(path: str) -> Any:
    with urllib.request.urlopen(f"http://{MANAGER}:{REST}{path}", timeout=8) as answer:
        return json.load(answer)


def newest(shared: Path) -> Path | None:
    """Return the newest complete checkpoint or savepoint; None if there is none."""
    found = [*shared.glob("checkpoints/*/chk-*/_metadata"), *shared.glob("savepoints/*/_metadata")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else None


def look(
    given: Sequence[str],
    shared: Path,
    ask: Callable[[str], Any] = ask,
    run: Callable[[Sequence[str]], int] = sotto,
) -> int:
    """Submit the job unless Flink has one; return the status of that, 0 if there is nothing to do.

    ``given`` is what ``sotto stream`` is given, ``--savepoint_path`` aside; checkpoints and
    savepoints of this job, and of no other, are in ``shared``. ``ask`` returns the job manager's
    answer to a path, ``run`` is the ``sotto`` command.
    """
    try:
        free = ask("/overview")["slots-available"]
        jobs = ask("/jobs/overview")["jobs"]
    except OSError:
        return 0
    if not free or any(job["state"] not in _ENDED for job in jobs):
        return 0
    left = newest(shared)
    return run(["stream", *given, *([f"--savepoint_path={left}"] if left else [])])


def main() -> int:
    """Look after the job until told to stop."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    while not stopped.is_set():
        if status := look(sys.argv[1:], SHARED):
            return status
        stopped.wait(EVERY)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
