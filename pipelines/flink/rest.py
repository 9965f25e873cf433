"""The part of a job manager's REST interface that is about jobs, without Flink's client."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sotto.errors import SottoError

#: How long one request may take, in seconds.
PATIENCE = 10.0
#: The states of jobs that have ended for good.
ENDED = ("FAILED", "CANCELED", "FINISHED", "SUSPENDED")


class FlinkError(SottoError):
    """Flink does not do what it is asked; the message says what to do."""


@dataclass(frozen=True)
class JobStatus:
    """A job that a job manager knows; ``state`` is as Flink names it, ``running`` counts tasks.

    ``began``: when it was submitted, ms.
    """

    id: str
    name: str
    state: str
    running: int
    tasks: int
    began: int

    @property
    def well(self) -> bool:
        return self.state == "RUNNING" and 0 < self.tasks == self.running


class JobManager:
    """A job manager, at a URL such as ``http://127.0.0.1:8081``."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise FlinkError(f"{url!r} must be a URL such as http://127.0.0.1:8081")
        self.url = url.rstrip("/")

    def jobs(self) -> list[JobStatus]:
        """Return all jobs that the job manager knows, also those that have ended."""
        return [_job(said) for said in self.ask("/jobs/overview")["jobs"]]

    def slots(self) -> int:
        return int(self.ask("/overview")["slots-available"])

    def failure(self, job: str) -> str:
        """Return why a job has failed last, in a line; empty if it has not."""
        return cause_of(self.failures(job))

    def failures(self, job: str) -> list[str]:
        """Return the traces of a job's last failures, the newest first."""
        entries = self.ask(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
        return [str(each["stacktrace"] or each["exceptionName"]) for each in entries]

    def cancel(self, job: str) -> None:
        """End a job; its last checkpoint stays."""
        self.ask(f"/jobs/{job}?mode=cancel", method="PATCH")

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """Return the answer to a path of the interface; FlinkError if there is none."""
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


def cause_of(failures: Sequence[str]) -> str:
    """Return the cause that the first, newest, trace names; empty if there are no failures."""
    trace = next(iter(failures), "")
    causes = re.findall(r"^(?:Caused by: )?(\S.*)", trace, re.MULTILINE)
    # An earlier cause may have the text of the last one and more, such as an address.
    last = causes[-1].partition(": ")[2] or causes[-1] if causes else ""
    return next((each for each in causes if last in each), trace)


def _job(said: dict[str, Any]) -> JobStatus:
    tasks, began = said["tasks"], said["start-time"]
    return JobStatus(
        said["jid"], said["name"], said["state"], tasks["running"], tasks["total"], began
    )


def _first_error(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["errors"][0]).splitlines()[0]
    except (ValueError, KeyError, IndexError):
        return str(error.reason)
