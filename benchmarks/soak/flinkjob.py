"""The streaming job on a Flink session of its own, what can happen to them, what it publishes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kafka.errors import KafkaError

from benchmarks.soak.stage import FaultError, wait_until
from deploy.flink.cluster import LocalFlink
from deploy.flink.operator import Operator
from deploy.flink.settings import TASK_MANAGER_HEAP
from pipelines.aggregation.result_rows import Candidates
from pipelines.beam.submission import JobFolder, Topics, submit
from pipelines.flink.rest import FlinkError
from pipelines.results.documents import Document, parse
from pipelines.sources.kafka_reader import read_to_end
from sotto.errors import BrokerError
from sotto.kafka.admin import connected
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic, Stay
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

#: Task slots of every session.
SLOTS = 2
#: How long a job may take to run again, in seconds.
PATIENCE = 600

D = TypeVar("D", bound=Document)


class FlinkJob:
    """A job and its session, in one folder.

    ``checkpoint_every``, ``every`` and ``linger`` are milliseconds: between checkpoints, at least
    between documents about one thing, and for how long rows are gathered. ``heap`` is megabytes of
    the task manager.
    """

    def __init__(
        self,
        folder: Path,
        plan: CompiledPlan,
        client_file: Path,
        topic: ReportTopic,
        *,
        checkpoint_every: int,
        every: int,
        linger: int,
        parallelism: int = 1,
        candidates: Candidates | None = None,
        heap: int = TASK_MANAGER_HEAP,
    ) -> None:
        self.session = LocalFlink(folder / "flink", slots=SLOTS, heap=heap)
        self.folder = JobFolder(folder / "job")
        self.parallelism = parallelism
        #: Flink's name of it, another one each time that it is submitted.
        self.id = ""
        self._plan, self._client_file, self._topic = plan, client_file, topic
        self._candidates = candidates or {}
        self._checkpoint_every = checkpoint_every
        self._settings: dict[str, Any] = {"publish_every_ms": every, "linger_ms": linger}

    def make_topics(self) -> None:
        """Make the topics of reports, estimates and quarantine."""
        horizon = Registry([self._plan]).horizon
        with connected(Broker.from_file(self._client_file)) as topics:
            topics.create(self._topic, replicas=1, retention=horizon)
            for kind in ("estimates", "quarantine"):
                stay = Stay(horizon, self._plan.retention)
                topics.create_sink(SinkTopic(self._topic.name, kind), 1, 1, stay)

    def start(self) -> None:
        """Start the session and submit the job, which has never run."""
        self.session.start()
        self.submit()

    def stop(self) -> None:
        """End the session at once."""
        for part in self.session.parts:
            part.kill()

    def submit(self, restore: str = "") -> None:
        """Submit the job, from a checkpoint or savepoint if one is given."""
        known = {job.id for job in self.manager.jobs()}
        options = [
            *self.session.options,
            f"--parallelism={self.parallelism}",
            # One Python process a slot.
            f"--sdk_worker_parallelism={SLOTS}",
            f"--checkpointing_interval={self._checkpoint_every}",
        ]
        submit(
            self.folder,
            Topics(Broker.from_file(self._client_file), (self._topic,)),
            [self._plan],
            self._candidates,
            [*options, *([f"--savepoint_path={restore}"] if restore else [])],
            **self._settings,
        )
        if not wait_until(lambda: bool(self._new(known)), PATIENCE):
            raise FaultError(f"a job that was submitted is not there within {PATIENCE} s")
        (self.id,) = self._new(known)
        self.wait_until_well()

    def _new(self, known: set[str]) -> list[str]:
        with contextlib.suppress(FlinkError):
            return [job.id for job in self.manager.jobs() if job.id not in known]
        return []

    def newest_checkpoint(self) -> str:
        """Return where the last whole checkpoint of the job is."""
        made = (self.session.folder / "checkpoints" / self.id).glob("chk-*/_metadata")
        folders = {int(each.parent.name.removeprefix("chk-")): each.parent for each in made}
        if not folders:
            raise FaultError("the job has no checkpoint")
        return folders[max(folders)].as_uri()

    def last_checkpoint(self) -> tuple[float, float]:
        """Return megabytes and seconds of the last checkpoint, zeros if none is known."""
        try:
            last = self.manager.checkpoints(self.id)["latest"]["completed"] or {}
        except FlinkError:
            last = {}
        return last.get("state_size", 0) / 1e6, last.get("end_to_end_duration", 0) / 1e3

    @property
    def manager(self) -> Operator:
        """The job manager."""
        return Operator(self.session.address)

    def wait_until_well(self) -> None:
        """Return once all of the job runs."""
        if not wait_until(self._well, PATIENCE):
            raise FaultError(f"the job does not run again: {self._failure()}")

    def _well(self) -> bool:
        try:
            return self.manager.job(self.id).well
        except FlinkError:
            return False

    def _failure(self) -> str:
        try:
            return self.manager.failure(self.id)
        except FlinkError as error:
            return str(error)

    def checkpoints(self, which: str = "completed") -> int:
        """Return how many checkpoints it has made since it was submitted, or ``failed`` to make."""
        try:
            return int(self.manager.checkpoints(self.id)["counts"][which])
        except FlinkError:
            return 0

    def wait_for_checkpoint(self) -> None:
        """Return once it has made another checkpoint."""
        before = self.checkpoints()
        if not wait_until(lambda: self.checkpoints() > before, PATIENCE):
            raise FaultError(f"no checkpoint within {PATIENCE} s: {self._failure()}")

    def kill(self, name: str) -> None:
        """Kill a part of the session with ``-9`` and start it again; the job manager loses jobs."""
        (part,) = (part for part in self.session.parts if part.name == name)
        part.kill()
        self.session.start()

    def kill_workers(self) -> int:
        """Kill the processes in which the pipeline's Python runs; return how many."""
        return sum(map(_killed, self.session.workers))

    def kill_job_manager(self) -> None:
        """Kill it and the job server, start others, restore the job from its last checkpoint."""
        self.session.job_server.kill()
        self.kill("jobmanager")
        # The task manager gives up what it did for the one that is gone, or the slots stay taken.
        if not wait_until(lambda: self.manager.slots() >= self.parallelism, PATIENCE):
            raise FaultError("the slots of the job that is gone are not free again")
        self.submit(self.newest_checkpoint())

    def rescale(self) -> None:
        """End the job with a savepoint; go on from it with other slots and another job server."""
        self.kill("jobserver")
        savepoints = (self.session.folder / "savepoints").as_uri()
        made = self.manager.savepoint(self.id, savepoints, stop=True)
        self.parallelism = 3 - self.parallelism
        self.manager.wait_for_slots(self.parallelism, PATIENCE)
        self.submit(made)


def _killed(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


class Follower:
    """Reads a topic of one partition again and again, each time to its end of then.

    The broker may be gone at times.
    """

    def __init__(self, broker: Broker, topic: SinkTopic) -> None:
        self._broker, self._topic = broker, topic
        self._at = 0
        self._newest: dict[bytes, Document] = {}
        #: How many documents came.
        self.records = 0

    def of(self, kind: type[D]) -> list[D]:
        """Return the newest document of each key, of one kind."""
        return [each for each in self._newest.values() if isinstance(each, kind)]

    def read(self) -> bool:
        """Read what is new; False if the broker could not be read to the end."""
        try:
            for record in read_to_end(self._broker, str(self._topic), 1, begin={"0": self._at}):
                document = parse(record.key, record.value)
                known = self._newest.get(record.key)
                self.records += 1
                if known is None or known.revision <= document.revision:
                    self._newest[record.key] = document
                self._at = record.offset + 1
        except (KafkaError, BrokerError, OSError):
            return False
        return True

    def read_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read until something is so, but no longer than that; return whether it is."""
        return wait_until(lambda: self.read() and condition(), seconds, pause=2)
