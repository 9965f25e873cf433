"""A steady run of the streaming job: does anything grow, does it keep up, is all of it counted?"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.soak.flinkjob import FlinkJob, memory
from benchmarks.soak.follower import Follower
from benchmarks.soak.load import METRICS, SECOND, plan_of
from benchmarks.soak.trend import trend
from deploy.flink.rest import FlinkError
from deploy.kafka.broker import LocalBroker
from pipelines.sinks.documents import HealthDocument, RejectsDocument, WindowDocument
from pipelines.sources.kafka_reader import PartitionId, Reader
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic

PARTITIONS = 4
SLOTS = 2
CHECKPOINTS = 10_000
EVERY = 5_000
LINGER = 10_000
#: Seconds between samples.
SAMPLE = 10
#: How far behind the job may be, in seconds of the load, in the second half.
LAG = 30.0
#: How long the job may take to count what is left at the end, in seconds.
ENDING = 300


class Sample(NamedTuple):
    """What is measured at a moment.

    Attributes
    ----------
    seconds : float
        Since the load began.
    checkpoint : float
        Of the last one, MB.
    job_manager, task_manager, workers, broker : float
        Memory in use (RSS), MB.
    lag : float
        Messages that are not taken, in seconds of the load.
    reports, superseded, chains : int
        As the job tells: read, in the place of older levels, and held.
    """

    seconds: float
    checkpoint: float
    job_manager: float
    task_manager: float
    workers: float
    broker: float
    lag: float
    reports: int
    superseded: int
    chains: int


#: What has to be flat.
_FLAT = ("checkpoint", "job_manager", "task_manager", "workers")


class Steady:
    """A broker, a job and a load.

    Parameters
    ----------
    folder : Path
    rate : float
        Reports a second.
    parallelism : int
    """

    def __init__(self, folder: Path, rate: float, parallelism: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._rate = rate
        self._broker = LocalBroker(folder / "broker")
        self._topic = ReportTopic("steady", 1, PARTITIONS)
        self._job = FlinkJob(
            folder,
            plan_of(),
            self._broker.client_file,
            self._topic,
            slots=SLOTS,
            checkpoint_every=CHECKPOINTS,
            every=EVERY,
            linger=LINGER,
        )
        self._job.parallelism = parallelism
        self._samples: list[Sample] = []

    def run(self, seconds: float) -> bool:
        """Run it for so long, tell all of it, and return whether everything held."""
        self._broker.start()
        try:
            self._job.make_topics()
            self._job.start()
            return self._run(seconds)
        finally:
            self._job.stop()
            self._broker.kill()

    def _run(self, seconds: float) -> bool:
        broker = Broker.from_file(self._broker.client_file)
        self._estimates = Follower(broker, SinkTopic(self._topic.name, "estimates"))
        self._reader = Reader(broker)
        load = self._load(seconds)
        began = time.monotonic()
        print("  ".join(f"{name:>12}" for name in Sample._fields), flush=True)
        try:
            while load.poll() is None:
                time.sleep(SAMPLE)
                self._sample(time.monotonic() - began)
            output, _ = load.communicate()
        finally:
            load.kill()
        if load.returncode:
            raise RuntimeError(f"the load ended with {load.returncode}: see load.log")
        said = json.loads(output)
        sent = self._telling(seconds)
        return _told(said, self._counted(said)) & sent

    def _load(self, seconds: float) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.soak.load"]
        command += [str(self._broker.client_file), str(self._topic)]
        command += ["--rate", str(self._rate), "--seconds", str(seconds)]
        with open(self._folder / "load.log", "ab") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def _sample(self, seconds: float) -> None:
        self._estimates.read()
        health = self._health()
        sample = Sample(
            seconds,
            self._checkpoint(),
            memory([self._job.session.job_manager.pid]),
            memory([self._job.session.task_manager.pid]),
            memory(self._job.session.workers),
            memory([self._broker.pid]),
            self._lag(health),
            _whole(health.get("reports")),
            _whole(health.get("superseded")),
            _whole(health.get("chains")),
        )
        self._samples.append(sample)
        print("  ".join(f"{_cell(value):>12}" for value in sample), flush=True)

    def _health(self) -> dict[str, object]:
        found = self._estimates.of(HealthDocument)
        return dict(found[0].health) if found else {}

    def _checkpoint(self) -> float:
        try:
            latest = self._job.manager.checkpoints(self._job.id)["latest"]
        except FlinkError:
            return 0.0
        return float((latest.get("completed") or {}).get("state_size", 0)) / 1e6

    def _lag(self, health: dict[str, object]) -> float:
        offsets = health.get("offsets")
        taken = sum(offsets.values()) if isinstance(offsets, dict) else 0
        partitions = [PartitionId(str(self._topic), at) for at in range(PARTITIONS)]
        ends = sum(end for _, end in self._reader.bounds(partitions).values())
        return float(ends - taken) * METRICS / self._rate

    def _telling(self, seconds: float) -> bool:
        """Tell the trends; return whether all are flat and the lag is bounded."""
        cycle = plan_of().period / SECOND
        at = [sample.seconds for sample in self._samples]
        print(f"\nsecond half of {seconds / 60:.0f} minutes, by {cycle:.0f} s:")
        flat = True
        for name in _FLAT:
            found = trend(at, [getattr(sample, name) for sample in self._samples], cycle)
            flat &= found.flat
            print(
                f"  {name:14}{found.mean:9.1f} MB, {found.slope:+8.3f} ± {found.error:.3f} MB/min: "
                f"{'flat' if found.flat else 'NOT FLAT'}"
            )
        lags = [sample.lag for sample in self._samples if sample.seconds >= at[-1] / 2]
        print(f"  lag at most {max(lags):.1f} s, {LAG:.0f} are allowed")
        return flat and max(lags) <= LAG

    def _counted(self, said: dict[str, float]) -> dict[str, int]:
        """Wait until all is counted, and return what the job tells."""

        def told() -> dict[str, int]:
            health = self._health()
            windows = self._estimates.of(WindowDocument)
            rejects = self._estimates.of(RejectsDocument)
            return {
                "reports": _whole(health.get("reports")),
                "superseded": _whole(health.get("superseded")),
                "counted": sum(_whole(each.window["n"]) for each in windows),
                "rejected": sum(sum(each.rejects.values()) for each in rejects),
            }

        self._estimates.read_until(
            lambda: told()["reports"] >= said["reports"] and told()["counted"] >= said["values"],
            ENDING,
        )
        return told()


def _told(said: dict[str, float], told: dict[str, int]) -> bool:
    """Tell what was sent and counted; return whether it is the same."""
    print(f"\nacknowledged {said['reports']:,} reports of {said['values']:,} values")
    print(f"not acknowledged {said['failed']:,} messages; late by at most {said['behind']} s")
    print(f"read {told['reports']:,}, of these in the place of older levels {told['superseded']:,}")
    print(f"values counted {told['counted']:,}, reports rejected {told['rejected']:,}")
    right = (said["reports"], said["values"]) == (told["reports"], told["counted"])
    return right and not said["failed"] and not told["rejected"]


def _whole(value: object) -> int:
    return int(str(value)) if value is not None else 0


def _cell(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
