"""Keeps the streaming job submitted; its arguments are those of ``sotto flink run``.

Flink restarts a job whose task manager or worker ended; a job whose job manager was started again
is forgotten there. This submits it then from its last checkpoint or savepoint, as a person would
with ``--from latest``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.images.node import environment, prepare, slots_of
from pipelines.flink.jobfolder import JobFolder
from pipelines.flink.rest import ENDED, FlinkError, JobManager
from sotto.cli import main as sotto

#: How often the job is looked at, in seconds.
EVERY = 10.0


def look(
    given: Sequence[str],
    folder: JobFolder,
    manager: JobManager,
    run: Callable[[Sequence[str]], int] = sotto,
) -> int:
    """Submit the job unless Flink has it; return the status of that, 0 if there is nothing to do.

    Parameters
    ----------
    given : sequence of str
        What ``sotto flink run`` is given, ``--from`` aside.
    folder : JobFolder
    manager : JobManager
    run : callable
        The ``sotto`` command.
    """
    if not slots_of(manager):
        return 0
    known = folder.known
    try:
        if any(job.name == known.group and job.state not in ENDED for job in manager.jobs()):
            return 0
    except FlinkError:
        return 0
    again = ["--from", "latest"] if known.flink else []
    return run(["flink", "run", *given, *again])


def main() -> int:
    """Look after the job until told to stop."""
    given = sys.argv[1:]
    folder = JobFolder(Path(given[given.index("--state") + 1]))
    manager = JobManager(given[given.index("--flink") + 1])
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    prepare()
    os.environ |= environment()
    while not stopped.is_set():
        if status := look(given, folder, manager):
            return status
        stopped.wait(EVERY)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
