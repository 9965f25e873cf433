"""Removes checkpoints of streaming jobs that have ended: they have rows with pseudonyms.

Flink keeps the last checkpoints of a job that was cancelled or forgotten, so that the job can go on
from them, and never removes them. Once a running job has completed a later checkpoint they are of
no more use. Savepoints are made by hand, and stay.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from pipelines.flink.rest import ENDED, JobManager
from sotto.clocks import now_ms
from sotto.errors import AggregationError

#: How long checkpoints of an ended job stay by default, ms.
KEEP = 7 * 86_400_000
#: A folder that Flink names after a job.
_JOB = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class EndedCheckpoints:
    """The folders of checkpoints of jobs that have ended, one for each job, and their bytes."""

    folders: tuple[Path, ...]
    size: int


def sweep_checkpoints(
    folder: Path, manager: JobManager, keep: int, *, dry_run: bool = False
) -> EndedCheckpoints:
    """Remove checkpoints of ended jobs; return which, or with ``dry_run`` which it would remove.

    ``folder``: Flink's ``state.checkpoints.dir``. ``keep``: ms for which the checkpoints of a job
    stay after its last one.

    Raises FlinkError if Flink does not answer, AggregationError if no running job has a complete
    checkpoint in the folder: then one of an ended job may be needed.
    """
    running = {job.id for job in manager.jobs() if job.state not in ENDED}
    jobs = [path for path in sorted(folder.iterdir()) if _JOB.fullmatch(path.name)]
    newest = max((_completed(job) for job in jobs if job.name in running), default=0.0)
    if not newest:
        raise AggregationError(
            f"no job that runs at {manager.url} has a complete checkpoint in {folder}: one of an "
            "ended job may be needed yet; submit the job first"
        )
    until = min(newest, (now_ms() - keep) / 1000)
    ended = [job for job in jobs if job.name not in running]
    found = [job for job in ended if (_completed(job) or job.stat().st_mtime) < until]
    size = sum(each.stat().st_size for job in found for each in job.rglob("*") if each.is_file())
    if not dry_run:
        for job in found:
            shutil.rmtree(job)
    return EndedCheckpoints(tuple(found), size)


def _completed(job: Path) -> float:
    """Return when a job's last checkpoint was completed, s; 0 for never."""
    return max((path.stat().st_mtime for path in job.glob("chk-*/_metadata")), default=0.0)
