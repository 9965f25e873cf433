"""What a job is ordered to do: all that goes from who submits it to Flink's client, as JSON.

It names the broker's file and never holds a password.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from pipelines.streaming.deployment import Deployment
from sotto.compiled import CompiledPlan
from sotto.errors import ParameterError
from sotto.registry import Registry
from sotto.topics import ReportTopic

BACKENDS = ("hashmap", "rocksdb")


@dataclass(frozen=True)
class Work:
    """What the operators of a job are given.

    Parameters
    ----------
    job : str
        Random name of the deployment.
    plans : tuple of str
        Compiled plans.
    topics : tuple of str
        Full names of the topics of reports.
    requeue : str or None
        The topic of what is given back, if there is one.
    requeue_partitions : int
    candidates : mapping
        By fingerprint, hexadecimal, and metric.
    slots, rows, linger, quiet, every : int
        As of :class:`~pipelines.streaming.deployment.Deployment`.
    """

    job: str
    plans: tuple[str, ...]
    topics: tuple[str, ...]
    requeue: str | None = None
    requeue_partitions: int = 1
    candidates: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict, hash=False
    )
    slots: int = 32
    rows: int = 2_000
    linger: int = 1_000
    quiet: int = 5_000
    every: int = 30_000

    @cached_property
    def registry(self) -> Registry:
        """The plans."""
        return Registry([CompiledPlan.from_json(text.encode()) for text in self.plans])

    def deployment(self) -> Deployment:
        """Return what the keepers know.

        Raises
        ------
        ModuleNotFoundError
            Reports are signed, and what verifies them is not installed.
        """
        self.registry.require_signatures()
        return Deployment(
            job=self.job,
            registry=self.registry,
            topics=tuple(map(ReportTopic.parse, self.topics)),
            requeue=self.requeue,
            requeue_partitions=self.requeue_partitions,
            candidates={bytes.fromhex(key): value for key, value in self.candidates.items()},
            slots=self.slots,
            rows=self.rows,
            linger=self.linger,
            quiet=self.quiet,
            every=self.every,
        )


@dataclass(frozen=True)
class Order:
    """A job, and how it is to run.

    Parameters
    ----------
    work : Work
    broker : str
        Path of the file that says how to reach the broker, read by Flink's client.
    flink : str
        URL at which the job manager takes jobs.
    checkpoints, savepoints : str
        URIs of folders that all of Flink reaches.
    name : str
        Of the job, for people; also the consumer group under which offsets are told.
    estimates, quarantine : str
        Names of the topics that are written.
    parallelism : int
    backend : {"hashmap", "rocksdb"}
        Where state lives while the job runs.
    checkpoint_every : int
        Milliseconds.
    restore : str or None
        The savepoint or checkpoint to go on from.
    worker : str or None
        Python of the workers, where it is elsewhere than the client's.
    """

    work: Work
    broker: str
    flink: str
    checkpoints: str
    savepoints: str
    name: str
    estimates: str
    quarantine: str
    parallelism: int = 1
    backend: str = BACKENDS[0]
    checkpoint_every: int = 10_000
    restore: str | None = None
    worker: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ParameterError(f"backend {self.backend!r} must be one of {', '.join(BACKENDS)}")
        if not 1 <= self.parallelism <= MAX_PARALLELISM:
            raise ParameterError(
                f"parallelism {self.parallelism} must be in [1, {MAX_PARALLELISM}]"
            )
        if not self.checkpoint_every >= 100:
            raise ParameterError(f"checkpoint_every {self.checkpoint_every} must be at least 100")

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Order:
        """Return the order of :meth:`to_json`."""
        said = json.loads(text)
        return cls(**{**said, "work": _work(said["work"])})

    def restored(self, path: str) -> Order:
        """Return the same, going on from a savepoint or checkpoint."""
        return replace(self, restore=path)


#: Keys hash into so many groups, for ever: a savepoint of another number cannot be restored.
MAX_PARALLELISM = 128


def _work(said: dict[str, Any]) -> Work:
    candidates = {
        fingerprint: {metric: tuple(strings) for metric, strings in by_metric.items()}
        for fingerprint, by_metric in said["candidates"].items()
    }
    lists = {name: tuple(said[name]) for name in ("plans", "topics")}
    return Work(**{**said, **lists, "candidates": candidates})
