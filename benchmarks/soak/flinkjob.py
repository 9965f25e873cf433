"""The streaming job on a Flink session of its own, and what can befall the two."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks.soak.schedule import FaultError
from benchmarks.soak.stage import wait_until
from deploy.flink.cluster import LocalFlink
from pipelines.flink.jobfolder import JobFolder
from pipelines.flink.launch import LATEST, Asked, submit
from pipelines.flink.preflight import stay_of
from pipelines.flink.rest import FlinkError, JobManager
from sotto.brokers import Broker
from sotto.compiled import CompiledPlan
from sotto.registry import Registry
from sotto.sinktopics import SinkTopic
from sotto.topicadmin import connected
from sotto.topics import ReportTopic

#: How long a job may take to run again, in seconds.
PATIENCE = 600


class FlinkJob:
    """A job and its session.

    Parameters
    ----------
    folder : Path
        For both.
    plan : CompiledPlan
    client_file : Path
        How to reach the broker.
    topic : ReportTopic
        Of the reports.
    slots : int
        Of the session.
    checkpoint_every, every : int
        Milliseconds: between checkpoints, and at least between documents about one thing.
    checkpoints : Path, optional
        Where they are kept, if not in the job's own folder.
    """

    def __init__(
        self,
        folder: Path,
        plan: CompiledPlan,
        client_file: Path,
        topic: ReportTopic,
        *,
        slots: int,
        checkpoint_every: int,
        every: int,
        checkpoints: Path | None = None,
    ) -> None:
        self.session = LocalFlink(folder / "flink", slots=slots)
        self.folder = JobFolder(folder / "job")
        self.parallelism = 1
        self._plan = plan
        self._client_file = client_file
        self._topic = topic
        self._checkpoint_every = checkpoint_every
        self._every = every
        self._checkpoints = None if checkpoints is None else checkpoints.resolve().as_uri()

    def make_topics(self) -> None:
        """Make the topics of reports, estimates and quarantine."""
        registry = Registry([self._plan])
        with connected(Broker.from_file(self._client_file)) as topics:
            topics.create(self._topic, replicas=1, retention=registry.horizon)
            for kind in ("estimates", "quarantine"):
                topics.create_sink(SinkTopic(self._topic.name, kind), 1, 1, stay_of(registry))

    def start(self) -> None:
        """Start the session and submit the job, which has never run."""
        self.session.start()
        self.submit(None)

    def stop(self) -> None:
        """End the session at once."""
        below = self.workers()
        self.session.task_manager.kill()
        _kill(below)
        self.session.job_manager.kill()

    def submit(self, restore: str | None = LATEST) -> None:
        """Submit the job, from its newest checkpoint or savepoint unless told otherwise."""
        submit(
            self.folder,
            Asked(
                plans=[self._plan],
                candidates={},
                broker=self._client_file,
                topics=[self._topic],
                flink=self.session.address,
                parallelism=self.parallelism,
                restore=restore,
                checkpoint_every=self._checkpoint_every,
                every=self._every,
                checkpoints=self._checkpoints,
                environment=self.session.client,
            ),
        )
        self.wait_until_well()

    @property
    def _savepoints(self) -> str:
        return self.folder.known.places[-1]

    @property
    def manager(self) -> JobManager:
        """The job manager."""
        return JobManager(self.session.address)

    def wait_until_well(self) -> None:
        """Return once all of the job runs.

        Raises
        ------
        FaultError
            It does not, within ``PATIENCE``; why it failed last.
        """
        if not wait_until(self._well, PATIENCE):
            raise FaultError(f"the job does not run again: {self._failure()}")

    def _well(self) -> bool:
        try:
            return self.manager.job(self.folder.known.id).well
        except FlinkError:
            return False

    def _failure(self) -> str:
        try:
            return self.manager.failure(self.folder.known.id)
        except FlinkError as error:
            return str(error)

    def checkpoints(self, which: str = "completed") -> int:
        """Return how many checkpoints it has made since it was submitted, or ``failed`` to make."""
        try:
            return int(self.manager.checkpoints(self.folder.known.id)["counts"][which])
        except FlinkError:
            return 0

    def wait_for_checkpoint(self) -> None:
        """Return once it has made another checkpoint.

        Raises
        ------
        FaultError
            It does not, within ``PATIENCE``; why it failed last.
        """
        before = self.checkpoints()
        if not wait_until(lambda: self.checkpoints() > before, PATIENCE):
            raise FaultError(f"no checkpoint within {PATIENCE} s: {self._failure()}")

    def kill_task_manager(self) -> None:
        """Kill it, with all that it has started, and start another."""
        below = self.workers()
        self.session.task_manager.kill()
        _kill(below)
        self.session.start()

    def kill_workers(self) -> int:
        """Kill the Python processes of the task manager; return how many."""
        return _kill(self.workers())

    def kill_job_manager(self) -> None:
        """Kill it, start another, and restore the job from its last checkpoint."""
        self.session.job_manager.kill()
        self.session.start()
        # The task manager gives up what it did for the one that is gone, or the slots stay taken.
        if not wait_until(lambda: self.manager.slots() >= self.parallelism, PATIENCE):
            raise FaultError("the slots of the job that is gone are not free again")
        self.submit()

    def rescale(self) -> None:
        """End the job with a savepoint and go on from it with another number of slots."""
        known = self.folder.known
        self.manager.savepoint(known.id, self._savepoints, stop=True)
        self.manager.wait(known.id, "FINISHED", seconds=PATIENCE)
        self.parallelism = 3 - self.parallelism
        wait_until(lambda: self.manager.slots() >= self.parallelism, PATIENCE)
        self.submit()

    def workers(self) -> list[int]:
        """Return the Python processes below the task manager."""
        above = self.session.task_manager.pid
        return [] if above is None else descendants(above)


def descendants(pid: int) -> list[int]:
    """Return all processes that a process has started, and those that these have."""
    said = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout
    below: dict[int, list[int]] = {}
    for line in said.splitlines():
        child, parent = map(int, line.split())
        below.setdefault(parent, []).append(child)
    found, wave = [], [pid]
    while wave:
        wave = [child for parent in wave for child in below.get(parent, [])]
        found += wave
    return found


def _kill(pids: list[int]) -> int:
    killed = 0
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:
            continue
    time.sleep(0.1)
    return killed
