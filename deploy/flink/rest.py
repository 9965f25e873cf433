"""A job manager's REST interface, as far as jobs need it; without Flink's client."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from sotto.errors import SottoError

#: How long one question may take, and a savepoint, in seconds.
PATIENCE = 10.0
SAVEPOINT_SECONDS = 600.0
#: How long a job may take to run again after a failure, in seconds.
RESTART_SECONDS = 120.0
_POLL_SECONDS = 0.2
_DONE = "COMPLETED"
#: A job in one of these states does not come back.
ENDED = ("FAILED", "CANCELED", "FINISHED", "SUSPENDED")


class FlinkError(SottoError):
    """Flink does not do what it is asked; the message says what to do."""


@dataclass(frozen=True)
class Job:
    """A job that a job manager knows; ``state`` is as Flink names it, ``running`` counts tasks."""

    id: str
    name: str
    state: str
    running: int
    tasks: int

    @property
    def well(self) -> bool:
        return self.state == "RUNNING" and 0 < self.tasks == self.running


class JobManager:
    """Answers about jobs, at a URL such as ``http://127.0.0.1:8081``."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise FlinkError(f"{url!r} must be a URL such as http://127.0.0.1:8081")
        self.url = url.rstrip("/")

    def jobs(self) -> list[Job]:
        """Return all jobs that it knows, ended ones too."""
        return [_job(said) for said in self._ask("/jobs/overview")["jobs"]]

    def job(self, job: str) -> Job:
        """Return a job; FlinkError if there is none of this id."""
        found = [each for each in self.jobs() if each.id == job]
        if not found:
            raise FlinkError(f"Flink at {self.url} knows no job {job}; its web page shows all")
        return found[0]

    def slots(self) -> int:
        return int(self._ask("/overview")["slots-available"])

    def wait_for_slots(self, number: int, seconds: float) -> int:
        """Return how many slots are free, once that is enough or the time is over.

        A job that has just ended, or whose job manager is gone, keeps its slots for a while.
        """
        deadline = time.monotonic() + seconds
        enough = int(self._ask("/overview")["slots-total"]) >= number
        while (free := self.slots()) < number and enough and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return free

    def checkpoints(self, job: str) -> dict[str, Any]:
        """Return what is known of a job's checkpoints: ``counts``, ``latest``, ``history``."""
        return dict(self._ask(f"/jobs/{job}/checkpoints"))

    def failure(self, job: str) -> str:
        """Return why a job has failed last, in a line; empty if it has not."""
        entries = self._ask(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
        if not entries:
            return ""
        causes = [
            line.removeprefix("Caused by: ").strip()
            for line in entries[0]["stacktrace"].splitlines()
            if line and not line.startswith(("\t", " "))
        ]
        return causes[-1] if causes else str(entries[0]["exceptionName"])

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
        trigger = self._ask(f"/jobs/{job}/{how}", body)["request-id"]
        deadline = time.monotonic() + SAVEPOINT_SECONDS
        while (said := self._ask(f"/jobs/{job}/savepoints/{trigger}"))["status"]["id"] != _DONE:
            if time.monotonic() > deadline:
                raise FlinkError(f"no savepoint within {SAVEPOINT_SECONDS:.0f} s; the job goes on")
            time.sleep(_POLL_SECONDS)
        if "location" not in said["operation"]:
            cause = str(said["operation"].get("failure-cause", {}).get("class", "no reason given"))
            raise FlinkError(f"the savepoint was not made ({cause}): see the job manager's log")
        return str(said["operation"]["location"])

    def cancel(self, job: str) -> None:
        """End a job; its last checkpoint stays."""
        self._ask(f"/jobs/{job}?mode=cancel", method="PATCH")

    def wait(self, job: str, *states: str, seconds: float = 60.0) -> Job:
        """Return a job once it is in one of these states; FlinkError if it is not in time."""
        deadline = time.monotonic() + seconds
        while (found := self.job(job)).state not in states:
            if time.monotonic() > deadline:
                raise FlinkError(f"job {job} is {found.state} after {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        return found

    def _ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data=data,
            method=method,
            headers={"Content-Type": "application/json"} if data else {},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise FlinkError(f"Flink refuses: {_first_error(error)}") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise FlinkError(
                f"no job manager answers at {self.url} ({reason}): is it running, and is this its "
                "address? make flink starts one here"
            ) from error


def _job(said: dict[str, Any]) -> Job:
    tasks = said["tasks"]
    return Job(said["jid"], said["name"], said["state"], tasks["running"], tasks["total"])


def _first_error(error: urllib.error.HTTPError) -> str:
    try:
        lines = str(json.loads(error.read())["errors"][0]).splitlines()
        return lines[0]
    except (ValueError, KeyError, IndexError):
        return str(error.reason)
