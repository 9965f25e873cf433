"""A steady run of the streaming job: does anything grow, does it keep up, is all of it counted?"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Table
from benchmarks.soak.flinkjob import FlinkJob, Follower, memory
from benchmarks.soak.load import METRICS, SECOND, plan_of
from benchmarks.soak.trend import trend
from deploy.kafka.broker import LocalBroker
from pipelines.exporter.lag import WatchedStream
from pipelines.results.documents import RejectsDocument, WindowDocument
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic

PARTITIONS = 4
#: Milliseconds between checkpoints, between documents about one thing, and that rows are gathered.
CHECKPOINTS, EVERY, LINGER = 10_000, 5_000, 10_000
#: Seconds between samples.
SAMPLE = 10
#: How far behind the job may be, in seconds of the load, in the second half.
LAG = 30.0
#: How long the job may take to count what is left at the end, in seconds.
ENDING = 300


class Sample(NamedTuple):
    """What is measured at a moment."""

    #: Since the load began.
    seconds: float
    #: Of the last one, MB.
    checkpoint: float
    #: Memory in use (RSS), MB.
    job_manager: float
    task_manager: float
    workers: float
    broker: float
    #: Messages that are not taken, in seconds of the load.
    lag: float
    #: By the job's health document: read, in the place of older levels, and held.
    reports: int
    superseded: int
    chains: int


#: What has to be flat.
_FLAT = ("checkpoint", "job_manager", "task_manager", "workers")


class Steady:
    """A broker, a job and a load of so many reports a second."""

    def __init__(self, folder: Path, rate: float, parallelism: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rate = folder, rate
        self._broker = LocalBroker(folder / "broker")
        self._topic = ReportTopic("steady", 1, PARTITIONS)
        self._job = FlinkJob(
            folder,
            plan_of(),
            self._broker.client_file,
            self._topic,
            checkpoint_every=CHECKPOINTS,
            every=EVERY,
            linger=LINGER,
            parallelism=parallelism,
        )
        self._samples: list[Sample] = []

    def run(self, seconds: float) -> bool:
        """Run it for so long, print all of it, and return whether everything held."""
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
        self._watched = WatchedStream(broker, [self._topic])
        command = [sys.executable, "-m", "benchmarks.soak.load"]
        command += [str(self._broker.client_file), str(self._topic)]
        command += ["--rate", str(self._rate), "--seconds", str(seconds)]
        table, began = Table(*Sample._fields), time.monotonic()
        with (
            open(self._folder / "load.log", "ab") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as load,
        ):
            try:
                while load.poll() is None:
                    time.sleep(SAMPLE)
                    self._samples.append(self._sample(time.monotonic() - began))
                    cells = self._samples[-1]
                    table.row(*(f"{v:,.1f}" if isinstance(v, float) else v for v in cells))
                output, _ = load.communicate()
            finally:
                load.kill()
        if load.returncode:
            raise RuntimeError(f"the load ended with {load.returncode}: see load.log")
        flat = self._print_trends(seconds)
        return self._all_counted(json.loads(output)) and flat

    def _sample(self, seconds: float) -> Sample:
        self._estimates.read()
        health, session = self._health(), self._job.session
        offsets = health.get("offsets")
        behind = self._watched.lag(offsets if isinstance(offsets, dict) else {}).records
        return Sample(
            seconds,
            self._job.last_checkpoint()[0],
            memory([session.job_manager.pid]),
            memory([session.task_manager.pid]),
            memory(session.workers),
            memory([self._broker.pid]),
            behind * METRICS / self._rate,
            *(_whole(health.get(name)) for name in ("reports", "superseded", "chains")),
        )

    def _health(self) -> dict[str, object]:
        found = self._estimates.health()
        return dict(found.health) if found else {}

    def _print_trends(self, seconds: float) -> bool:
        """Print the trends; return whether all are flat and the lag is bounded."""
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

    def _all_counted(self, sent: dict[str, float]) -> bool:
        """Wait until all is counted, print it, and return whether it is what was sent."""

        def counted() -> tuple[int, int]:
            windows = self._estimates.of(WindowDocument)
            found = sum(_whole(each.window["n"]) for each in windows)
            return _whole(self._health().get("reports")), found

        wanted = (sent["reports"], sent["values"])
        self._estimates.read_until(
            lambda: all(a >= b for a, b in zip(counted(), wanted, strict=True)), ENDING
        )
        rejects = self._estimates.of(RejectsDocument)
        rejected = sum(sum(each.rejects.values()) for each in rejects)
        superseded = _whole(self._health().get("superseded"))
        read, values = counted()
        print(f"\nacknowledged {sent['reports']:,} reports of {sent['values']:,} values")
        print(f"not acknowledged {sent['failed']:,} messages; late by at most {sent['behind']} s")
        print(f"read {read:,}, of these in the place of older levels {superseded:,}")
        print(f"values counted {values:,}, reports rejected {rejected:,}")
        return (read, values) == wanted and not sent["failed"] and not rejected


def _whole(value: object) -> int:
    return int(str(value)) if value is not None else 0
