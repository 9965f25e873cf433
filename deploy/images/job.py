"""Keeps a streaming job submitted and watched; its arguments are those of ``sotto stream``.

Flink restarts a job whose task manager or worker ended. A job whose job manager was started again
is forgotten there: this submits it then from the newest checkpoint or savepoint that it has left.
While the job runs ``sotto stream`` waits for it, and keeps the plans that come; beside it ``sotto
retain`` removes checkpoints of jobs that have ended.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from deploy.images.node import MANAGER, REST, SHARED
from pipelines.flink.rest import ENDED, FlinkError, JobManager
from sotto.exit_status import ExitStatus
from sotto_cli import main as sotto

#: How often the job is looked at, in seconds.
EVERY = 10.0
#: How often checkpoints of jobs that have ended are removed, in seconds.
SWEEP_EVERY = 3600.0


def newest(shared: Path) -> Path | None:
    """Return the newest complete checkpoint or savepoint; None if there is none."""
    found = [*shared.glob("checkpoints/*/chk-*/_metadata"), *shared.glob("savepoints/*/_metadata")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else None


def look(
    given: Sequence[str],
    shared: Path,
    manager: JobManager,
    run: Callable[[Sequence[str]], int] = sotto,
) -> int:
    """Submit the job unless Flink has one, and wait for it; return the status of that.

    It is 0 also where there is nothing to do yet. ``given`` is what ``sotto stream`` is given,
    ``--savepoint_path`` aside; checkpoints and savepoints of this job, and of no other, are in
    ``shared``. ``run`` is the command.
    """
    try:
        free, jobs = manager.slots(), manager.jobs()
    except FlinkError:
        return 0
    running = any(job.state not in ENDED for job in jobs)
    if not running and not free:
        return 0
    left = None if running else newest(shared)
    return run(["stream", *given, *([f"--savepoint_path={left}"] if left else [])])


def sweep(shared: Path, manager: JobManager, run: Callable[[Sequence[str]], int] = sotto) -> None:
    """Remove, once an hour, checkpoints of jobs that ended long ago: pseudonyms are in them.

    Parameters as of :func:`look`.
    """
    while True:
        time.sleep(SWEEP_EVERY)
        try:
            run(["retain", f"--checkpoints={shared / 'checkpoints'}", f"--flink={manager.url}"])
        except Exception:
            # An error that nobody foresaw is shown, and may be gone in an hour.
            traceback.print_exc()


def main() -> int:
    """Look after the job until told to stop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    manager = JobManager(f"http://{MANAGER}:{REST}")
    Thread(target=sweep, args=(SHARED, manager), daemon=True).start()
    with suppress(KeyboardInterrupt):
        while (status := look(sys.argv[1:], SHARED, manager)) != ExitStatus.INTERRUPTED:
            if status == ExitStatus.FAILED:
                return status
            while status == ExitStatus.LOST:
                # It was said why; to submit the job again would come to the same.
                signal.pause()
            time.sleep(EVERY)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
