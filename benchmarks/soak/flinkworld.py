"""What the fault run of the streaming job plays in: a stage, and a job on Flink."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.soak.follower import Follower
from benchmarks.soak.stage import Stage, wait_until
from deploy.flink.cluster import LocalFlink
from pipelines.flink.jobfolder import JobFolder
from pipelines.flink.launch import LATEST, Asked, submit
from pipelines.flink.preflight import stay_of
from pipelines.flink.rest import FlinkError, JobManager
from sotto.brokers import Broker
from sotto.registry import Registry
from sotto.sinktopics import SinkTopic
from sotto.topicadmin import connected

SLOTS = 2
#: How long a job may take to run again, in seconds.
PATIENCE = 240
#: Milliseconds between checkpoints, and between documents about one thing.
CHECKPOINTS = 3_000
EVERY = 2_000


class FlinkWorld(Stage):
    """A stage, read by a job on a session of its own.

    Parameters
    ----------
    folder, seed, rate
        As of :class:`~benchmarks.soak.stage.Stage`.
    """

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        super().__init__(folder, seed, rate)
        self.session = LocalFlink(folder / "flink", slots=SLOTS)
        self.job = JobFolder(folder / "job")
        self.parallelism = 1

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.session.start()
            self.estimates = Follower(
                Broker.from_file(self.broker.client_file), SinkTopic(self.topic.name, "estimates")
            )
            self.submit(None)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.session.task_manager.kill()
        self.session.job_manager.kill()
        super().__exit__(kind, error, trace)

    def make_topics(self) -> None:
        """Make the topics of reports, estimates and quarantine."""
        super().make_topics()
        stay = stay_of(Registry([self.fleet.plan]))
        with connected(Broker.from_file(self.broker.client_file)) as topics:
            for kind in ("estimates", "quarantine"):
                topics.create_sink(SinkTopic(self.topic.name, kind), 1, 1, stay)

    def submit(self, restore: str | None = LATEST) -> None:
        """Submit the job, from its newest checkpoint or savepoint unless told otherwise."""
        submit(
            self.job,
            Asked(
                plans=[self.fleet.plan],
                candidates={},
                broker=self.broker.client_file,
                topics=[self.topic],
                flink=self.session.address,
                parallelism=self.parallelism,
                restore=restore,
                checkpoint_every=CHECKPOINTS,
                every=EVERY,
                environment=self.session.client,
            ),
        )
        self.wait_until_well()

    @property
    def manager(self) -> JobManager:
        """The job manager."""
        return JobManager(self.session.address)

    def wait_until_well(self) -> None:
        """Return once all of the job runs.

        Raises
        ------
        RuntimeError
            It does not, within ``PATIENCE``; why it failed last.
        """
        if not wait_until(self._well, PATIENCE):
            raise RuntimeError(f"the job does not run again: {self._failure()}")

    def _well(self) -> bool:
        try:
            return self.manager.job(self.job.known.id).well
        except FlinkError:
            return False

    def _failure(self) -> str:
        try:
            return self.manager.failure(self.job.known.id)
        except FlinkError as error:
            return str(error)

    def wait_for_checkpoint(self) -> None:
        """Return once the job has made another checkpoint since it was submitted."""
        known = self.job.known.id

        def completed() -> int:
            try:
                return int(self.manager.checkpoints(known)["counts"]["completed"])
            except FlinkError:
                return 0

        before = completed()
        if not wait_until(lambda: completed() > before, PATIENCE):
            raise RuntimeError(f"no checkpoint within {PATIENCE} s: {self._failure()}")

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
            raise RuntimeError("the slots of the job that is gone are not free again")
        self.submit()

    def rescale(self) -> None:
        """End the job with a savepoint and go on from it with another number of slots."""
        known = self.job.known
        self.manager.savepoint(known.id, self.job.place("savepoints"), stop=True)
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
