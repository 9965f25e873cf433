"""The fault run of the streaming job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.checker import (
    Audited,
    Windows,
    audit_of_fleet,
    published_windows,
    spread,
    windows_of,
)
from benchmarks.soak.faults import Play
from benchmarks.soak.flinkjob import FlinkJob, Follower
from benchmarks.soak.stage import CHOICES, STAGE_FAULTS, Injection, Stage, wait_until
from clientsdk.ledger import read_file
from pipelines.aggregation.counts import Matrix, WindowKey
from pipelines.bounded.run import aggregate
from pipelines.results.documents import PeriodDocument, RejectsDocument, WindowDocument
from pipelines.sources.kafka import KafkaTopics
from pipelines.storage.directory import StateDirectory
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import SinkTopic

#: Milliseconds between checkpoints, between documents about one thing, and that rows are gathered.
CHECKPOINTS, EVERY, LINGER = 3_000, 10_000, 2_000
#: How long the job may take before it has counted more of what was acknowledged, in seconds.
PATIENCE = 240
#: So often is it waited for while it counts more.
_ATTEMPTS = 4


class FlinkStage(Stage):
    """A stage, read by a job on a session of its own."""

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        super().__init__(folder, seed, rate, "flink/checkpoints")
        self.job = FlinkJob(
            folder,
            self.fleet.plan,
            self.broker.client_file,
            self.topic,
            checkpoint_every=CHECKPOINTS,
            every=EVERY,
            linger=LINGER,
        )

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            broker = Broker.from_file(self.broker.client_file)
            self.estimates = Follower(broker, SinkTopic(self.topic.name, "estimates"))
            self.job.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.job.stop()
        super().__exit__(*error)

    def make_topics(self) -> None:
        """Make the topics of reports, estimates and quarantine."""
        self.job.make_topics()


def _part(stage: FlinkStage, fault: Injection) -> bool:
    stage.job.kill(fault.what)
    # Flink notices within a moment, and only then is the job not well.
    time.sleep(2)
    stage.job.wait_until_well()
    return True


def _worker(stage: FlinkStage, fault: Injection) -> bool:
    killed = stage.job.kill_workers()
    time.sleep(2)
    stage.job.wait_until_well()
    return killed > 0


def _job_manager(stage: FlinkStage, fault: Injection) -> bool:
    stage.job.wait_for_checkpoint()
    stage.job.kill_job_manager()
    return True


def _rescale(stage: FlinkStage, fault: Injection) -> bool:
    stage.job.rescale()
    return True


def _disk(stage: FlinkStage, fault: Injection) -> bool:
    """Fill the disk until a checkpoint has failed; with room there must be one again."""
    if not stage.disk.mounted:
        return False
    before = stage.job.checkpoints("failed")
    stage.disk.leave(fault.room)
    failed = wait_until(lambda: stage.job.checkpoints("failed") > before, 30)
    stage.disk.make_room()
    stage.job.wait_for_checkpoint()
    return failed


def _behind(stage: FlinkStage, fault: Injection) -> bool:
    """Let much be sent while no task runs; then let them run, and kill them on the way."""
    stage.job.session.task_manager.kill()
    enough = stage.progress.count("messages") + 2_000 * fault.occurrence
    wait_until(lambda: stage.progress.count("messages") > enough, 60)
    stage.job.session.start()
    stage.job.wait_until_well()
    time.sleep(fault.delay)
    stage.job.kill("taskmanager")
    stage.job.wait_until_well()
    return True


#: Kinds of faults: their shares of a run, and how each is brought about.
_KINDS: dict[str, tuple[int, Callable[[FlinkStage, Injection], bool]]] = {
    "part of the session killed": (14, _part),
    "Python workers killed": (8, _worker),
    "job manager killed, restored": (8, _job_manager),
    "savepoint and rescale": (10, _rescale),
    "broker killed": (6, STAGE_FAULTS["broker killed"]),
    "sender killed": (6, STAGE_FAULTS["sender killed"]),
    "network": (12, STAGE_FAULTS["network"]),
    "disk full": (4, _disk),
    "repeated and reordered": (4, STAGE_FAULTS["repeated and reordered"]),
    "consumer far behind": (3, _behind),
}
#: The job server is not missed until a job is submitted.
_PARTS = ("taskmanager", "taskmanager", "pool", "pool", "jobserver")


class Streamed(Play):
    """The job of a stage."""

    stage: FlinkStage

    def __init__(self, stage: FlinkStage) -> None:
        self.stage, self.kinds = stage, _KINDS
        self.choices = {**CHOICES, "part of the session killed": _PARTS}
        self._known: dict[tuple[str, int], tuple[WindowDocument, WindowKey, Matrix]] = {}

    def inject(self, fault: Injection) -> bool:
        time.sleep(fault.delay)
        return self.kinds[fault.kind][1](self.stage, fault)

    def counted(self, settled: Callable[[Windows], bool]) -> Windows:
        self.stage.job.wait_until_well()
        estimates = self.stage.estimates
        for _ in range(_ATTEMPTS):
            before = estimates.records
            done = estimates.read_until(lambda: settled(self._published()), PATIENCE)
            if done or estimates.records == before:
                break
        return self._published()

    def rejected(self) -> int:
        documents = self.stage.estimates.of(RejectsDocument)
        return sum(sum(each.rejects.values()) for each in documents)

    def audited(self, counted: NDArray[np.int64]) -> Audited:
        """Compare the audits of budget periods with counts and devices' ledgers."""
        stage = self.stage
        expected = _expected(stage, counted)

        def found() -> dict[int, tuple[int, int, int]]:
            rows = [each.period for each in stage.estimates.of(PeriodDocument)]
            return {
                _whole(row, "period_start") // stage.fleet.plan.period: (
                    _whole(row, "pseudonyms"),
                    _whole(row, "accepted"),
                    _whole(row, "observed"),
                )
                for row in rows
            }

        stage.estimates.read_until(lambda: found() == expected, PATIENCE)
        there = found()
        periods = there.keys() | expected.keys()
        wrong = sum(there.get(period) != expected.get(period) for period in periods)
        return Audited(sum(each[0] for each in there.values()), wrong)

    def unlike(self, counted: NDArray[np.int64]) -> int:
        """Aggregate the same topic, and return how many devices count otherwise there."""
        stage, path = self.stage, self.stage.folder / "aggregated"
        source = KafkaTopics(Broker.from_file(stage.broker.client_file), [stage.topic])
        aggregate(source, path, [stage.fleet.plan])
        windows = list(windows_of(StateDirectory(path)))
        there, stray = spread(windows, stage.fleet, counted.shape[1])
        return stray + int(np.count_nonzero((there != counted).any(axis=(0, 2))))

    def _published(self) -> Windows:
        """Return what is counted by what is published; each document is decoded once."""
        for each in self.stage.estimates.of(WindowDocument):
            name = str(each.window["metric"]), _whole(each.window, "window_start")
            known = self._known.get(name)
            if known is None or known[0] is not each:
                for key, matrix in published_windows([each], self.stage.fleet):
                    self._known[name] = each, key, matrix
        return [(key, matrix) for _, key, matrix in self._known.values()]


def _whole(row: Mapping[str, object], name: str) -> int:
    return int(str(row[name]))


def _expected(stage: FlinkStage, counted: NDArray[np.int64]) -> dict[int, tuple[int, int, int]]:
    """Return pseudonyms, accepted and observed of every period, by fleet and devices' ledgers."""
    fleet = stage.fleet
    pseudonyms: Counter[int] = Counter()
    spent: Counter[int] = Counter()
    for each in audit_of_fleet(fleet, counted).values():
        pseudonyms[each.period] += 1
        spent[each.period] += each.accepted
    for path in stage.device_files():
        for period in read_file(path).periods:
            if period.spent:
                pseudonyms[period.number] += 1
                spent[period.number] += period.spent
    return {period: (pseudonyms[period], spent[period], spent[period]) for period in pseudonyms}
