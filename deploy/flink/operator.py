"""Savepoints of jobs, and waiting for jobs, as tests and the soak need them."""

from __future__ import annotations

import time
from typing import Any

from pipelines.flink.rest import ENDED, FlinkError, JobManager, JobStatus

#: How long a savepoint may take, in seconds.
SAVEPOINT_SECONDS = 600.0
#: How long a job may take to run again after a failure, in seconds.
RESTART_SECONDS = 120.0
_POLL_SECONDS = 0.2
_DONE = "COMPLETED"


class Operator(JobManager):
    """Stops jobs with savepoints, and waits for them."""

    def job(self, job: str) -> JobStatus:
        """Return a job; FlinkError if there is none of this id."""
        found = [each for each in self.jobs() if each.id == job]
        if not found:
            raise FlinkError(f"Flink at {self.url} knows no job {job}; its web page shows all")
        return found[0]

    def wait_for_slots(self, number: int, seconds: float) -> int:
        """Return how many slots are free, once that is enough or the time is over.

        A job that has just ended, or whose job manager is gone, keeps its slots for a while.
        """
        deadline = time.monotonic() + seconds
        enough = int(self.ask("/overview")["slots-total"]) >= number
        while (free := self.slots()) < number and enough and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return free

    def checkpoints(self, job: str) -> dict[str, Any]:
        """Return what is known of a job's checkpoints: ``counts``, ``latest``, ``history``."""
        return dict(self.ask(f"/jobs/{job}/checkpoints"))

    def savepoint(self, job: str, folder: str, *, stop: bool) -> str:
        """Have a savepoint made in ``folder``, a URI, and return where; ``stop`` ends the job."""
        # While a task is still starting, Flink makes none.
        self.wait_until_well(job)
        if stop:
            made = self._saved(job, "stop", {"targetDirectory": folder})
            self.wait(job, "FINISHED")
            return made
        return self._saved(job, "savepoints", {"target-directory": folder})

    def wait_until_well(self, job: str, seconds: float = RESTART_SECONDS) -> None:
        """Return once all of a job runs; FlinkError if it has ended, or does not in time."""
        deadline = time.monotonic() + seconds
        while not (found := self.job(job)).well:
            if found.state in ENDED or time.monotonic() > deadline:
                raise FlinkError(f"job {job} is {found.state.lower()}: {self.failure(job)}")
            time.sleep(_POLL_SECONDS)

    def _saved(self, job: str, how: str, body: object) -> str:
        trigger = self.ask(f"/jobs/{job}/{how}", body)["request-id"]
        deadline = time.monotonic() + SAVEPOINT_SECONDS
        while (said := self.ask(f"/jobs/{job}/savepoints/{trigger}"))["status"]["id"] != _DONE:
            if time.monotonic() > deadline:
                raise FlinkError(f"no savepoint within {SAVEPOINT_SECONDS:.0f} s; the job goes on")
            time.sleep(_POLL_SECONDS)
        if "location" not in said["operation"]:
            cause = str(said["operation"].get("failure-cause", {}).get("class", "no reason given"))
            raise FlinkError(f"the savepoint was not made ({cause}): see the job manager's log")
        return str(said["operation"]["location"])

    def wait(self, job: str, *states: str, seconds: float = 60.0) -> JobStatus:
        """Return a job once it is in one of these states; FlinkError if it is not in time."""
        deadline = time.monotonic() + seconds
        while (found := self.job(job)).state not in states:
            if time.monotonic() > deadline:
                raise FlinkError(f"job {job} is {found.state} after {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        return found
