"""What the fault run of the streaming job plays in: a stage, and a job on Flink."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.soak.disk import disk_at
from benchmarks.soak.flinkjob import FlinkJob
from benchmarks.soak.follower import Follower
from benchmarks.soak.stage import Stage
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import SinkTopic

SLOTS = 2
#: Milliseconds between checkpoints, and between documents about one thing.
CHECKPOINTS = 3_000
EVERY = 10_000
#: Milliseconds for which rows are gathered.
LINGER = 2_000


class FlinkWorld(Stage):
    """A stage, read by a job on a session of its own.

    Parameters
    ----------
    folder, seed, rate
        As of :class:`~benchmarks.soak.stage.Stage`.
    """

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        super().__init__(folder, seed, rate)
        self.disk = disk_at(folder / "flink" / "checkpoints")
        self.job = FlinkJob(
            folder,
            self.fleet.plan,
            self.broker.client_file,
            self.topic,
            slots=SLOTS,
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
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.job.stop()
        super().__exit__(kind, error, trace)
        if self.disk is not None:
            self.disk.close()

    def make_topics(self) -> None:
        """Make the topics of reports, estimates and quarantine."""
        self.job.make_topics()
