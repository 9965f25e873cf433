"""Watches a submitted job, for ``sotto stream``: at Flink, or at the job server that took it.

Flink knows a job even if the job server has gone, and knows why it fails. It restarts a job after
every error. An error that no restart can mend (:class:`~pipelines.sources.base.LostError`) ends the
job here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import grpc
from apache_beam.runners.runner import PipelineState

from pipelines.flink import JOB_PREFIX, MAY_WAIT
from pipelines.flink.rest import ENDED, FlinkError, JobManager, JobStatus, cause_of

#: The error of a worker, as Flink shows it, if the next records do not exist any more.
_LOST = re.compile(
    r"^pipelines\.sources\.base\.(?:Lost|Gone)Error: (.+?)(?: \[while running|$)", re.M
)


#: How long the job server may take to turn a pipeline into a job, in seconds.
_KNOWN_SECONDS = 120.0
#: After so many seconds a message says what is waited for.
_SILENT_SECONDS = 10.0
_POLL_SECONDS = 0.5
#: States in which a job may still fail to begin, for example because of its savepoint.
_BEGINNING = ("INITIALIZING", "CREATED")


class Ending(StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"  #: also cancelled or forgotten; it can go on from its last checkpoint
    LOST = "lost"  #: the records that it has to read next do not exist any more


class JobState(NamedTuple):
    """The state of a job."""

    text: str  #: the state as a word or a sentence
    ending: Ending | None = None  #: None while it may go on


class SubmittedJob(Protocol):
    """A job that was submitted."""

    def look(self) -> JobState:
        """Return the present state; if nothing answers, a state that says so."""


class ServedJob:
    """A job known to the job server that took it; ``result`` is Beam's.

    ``flink``: whether the engine is Flink, or may be.
    """

    def __init__(self, result: Any, *, flink: bool) -> None:
        self._result = result
        self._flink = flink

    def look(self) -> JobState:
        """Return the state that the job server says; if it does not answer, the job may go on."""
        try:
            state = self._result.state
        except grpc.RpcError:
            return JobState(
                "the job server does not answer, which ends no job; with --flink the engine is "
                "asked itself"
            )
        ending = Ending.DONE if state == PipelineState.DONE else Ending.FAILED
        hint = MAY_WAIT if self._flink and state == PipelineState.RUNNING else ""
        text = state.lower() + hint
        return JobState(text, ending if PipelineState.is_terminal(state) else None)


class FlinkJob:
    """A job at Flink; ``url`` is that of the job manager."""

    def __init__(self, url: str) -> None:
        self._manager = JobManager(url)
        self._id: str | None = None

    @property
    def page(self) -> str:
        """The address of the job on Flink's web page, once the job has been found."""
        return f"{self._manager.url}/#/job/running/{self._id}/overview"

    def find(self, job: str | None) -> bool:
        """Look for the newest job of the name that its documents carry; return whether it goes on.

        Raises FlinkError if Flink does not answer.
        """
        found = self._newest(job)
        return found is not None and found.state not in ENDED

    def _newest(self, job: str | None) -> JobStatus | None:
        named = [each for each in self._manager.jobs() if each.name == f"{JOB_PREFIX}{job}"]
        found = max(named, key=lambda each: each.began, default=None)
        self._id = None if found is None else found.id
        return found

    def wait_until_begun(self, job: str | None, say: Callable[[str], None]) -> bool:
        """Wait until another job than the one that was found has begun; return whether it has.

        It is called after a submission, and waits for up to two minutes. ``say``: called once, with
        what is waited for, if that takes long.
        """
        before, began, said = self._id, time.monotonic(), False
        while (waited := time.monotonic() - began) < _KNOWN_SECONDS:
            why = f"{self._manager.url} does not list the job yet"
            # The job was submitted, even if Flink does not answer now.
            try:
                found = self._newest(job)
                if found is not None and found.id != before:
                    if found.state not in _BEGINNING:
                        return True
                    why = f"the job is {found.state.lower()}: {self.page}"
            except FlinkError as error:
                why = str(error)
            if waited >= _SILENT_SECONDS and not said:
                say(f"submitted; waiting for Flink, for up to {_KNOWN_SECONDS:.0f} s: {why}")
                said = True
            time.sleep(_POLL_SECONDS)
        return False

    def look(self) -> JobState:
        """Return the state that Flink says; end a job whose next records are lost."""
        try:
            found = [each for each in self._manager.jobs() if each.id == self._id]
            if found:
                return self._state(found[0])
            return JobState(_FORGOTTEN.format(self._id), Ending.FAILED)
        except FlinkError as error:
            return JobState(str(error))

    def _state(self, job: JobStatus) -> JobState:
        if job.state == "FINISHED":
            return JobState("done", Ending.DONE)
        failures = self._manager.failures(job.id)
        why = _INCOMPLETE if job.state == "RUNNING" and not job.well else ""
        if job.state in ("FAILED", "RESTARTING"):
            why = cause_of(failures)
        text = ": ".join(filter(None, (job.state.lower(), why)))
        if job.state in ENDED:
            return JobState(text, Ending.FAILED)
        lost = [_LOST.search(each) for each in failures[:2]]
        # The job is ended only if it failed in the same way again after a restart.
        if len(lost) == 2 and lost[0] and lost[1]:
            self._manager.cancel(job.id)
            return JobState(lost[0][1], Ending.LOST)
        return JobState(text)


_INCOMPLETE = "some tasks wait, for free slots or for the pool of workers"
_FORGOTTEN = (
    "Flink has forgotten the job, as a job manager does that was started again: submit it with "
    "--savepoint_path and its newest checkpoint, checkpoints/{}/chk-N"
)
