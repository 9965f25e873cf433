"""The streaming pipeline on a Flink with two slots: a backlog, and many partitions and shards.

Broker, Flink, job server and workers are started for it, on loopback, and share the machine's
cores; workers are one Python process a slot.

*Backlog*: reports are those of ``benchmarks.kafka``, all in the topic before the job is submitted.
The rate is taken from the first health document that tells of reports to the one that tells of all
of them counted, so that starting costs nothing. A bounded run (``sotto aggregate``) of the same
topic stands beside it, on one core, by wall time too. The checkpoint is the first that was begun
after all was counted.

*Wide*: 64 partitions, 1,000 shards, budget periods of a minute. First nothing comes, then 20,000
reports a second (``benchmarks.soak.load``), then nothing again: what a job costs that waits, and
whether checkpoints go on. *Behind* is the most records that were not read, in seconds of the load.

Cores are processor time by wall time: of the broker, the job manager, the task manager, and all
workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka import PARTITIONS, Measured, fill
from benchmarks.messages import CANDIDATES, plan
from benchmarks.soak import load
from benchmarks.soak.flinkjob import FlinkJob, memory
from benchmarks.soak.follower import Follower
from benchmarks.soak.schedule import FaultError
from deploy.errors import DeployError
from deploy.flink.rest import FlinkError
from deploy.kafka.broker import LocalBroker
from pipelines.exporter.lag import WatchedStream
from pipelines.sinks.documents import HealthDocument
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic, SinkTopic
from sotto.plan.compiled import CompiledPlan

SLOTS = 2
#: Rows a message, and reports of the topic.
CASES = ((5, 2_000_000), (50, 6_000_000))
#: Of the wide job.
WIDE_PARTITIONS, WIDE_SHARDS = 64, 1_000
RATE = 20_000
#: Seconds of each of its phases, and between two looks.
PHASE, LOOK = 90, 5
#: How long anything may take, s.
PATIENCE = 600


class Bench:
    """A job on a session of its own, and what is known of it."""

    def __init__(
        self, folder: Path, local: LocalBroker, plan: CompiledPlan, topic: ReportTopic, every: int
    ) -> None:
        client = local.client_file
        self.topic, self.broker, self._local = topic, Broker.from_file(client), local
        self.job = FlinkJob(
            folder,
            plan,
            client,
            topic,
            slots=SLOTS,
            checkpoint_every=10_000,
            every=every,
            linger=2_000,
            candidates={plan.fingerprint: {"destination": CANDIDATES}},
        )
        self.job.parallelism = SLOTS
        self.job.make_topics()
        self._estimates = Follower(self.broker, SinkTopic(topic.name, "estimates"))

    def health(self) -> HealthDocument | None:
        """Return what the job has said of itself last."""
        self._estimates.read()
        found = self._estimates.of(HealthDocument)
        return found[0] if found else None

    def pids(self) -> tuple[list[int | None], ...]:
        """Return the processes: broker, job manager, task manager, workers."""
        session = self.job.session
        one = [[self._local.pid], [session.job_manager.pid], [session.task_manager.pid]]
        return *one, [*session.workers]

    def cores(self, since: tuple[float, list[float]]) -> str:
        """Return the cores that they have used since :meth:`clock`."""
        (began, before), (now, after) = since, self.clock()
        return "/".join(
            f"{(b - a) / (now - began):.2f}" for a, b in zip(before, after, strict=True)
        )

    def clock(self) -> tuple[float, list[float]]:
        """Return what time it is, and the processor time of all processes until now."""
        return time.monotonic(), [sum(map(_processor, pids)) for pids in self.pids()]

    def memory(self) -> str:
        """Return the resident megabytes of the task manager and of the workers."""
        *_, manager, workers = self.pids()
        return f"{memory(manager):,.0f}/{memory(workers):,.0f}"

    def checkpoint(self, number: int = 0) -> tuple[float, float]:
        """Return MB and seconds of the last checkpoint, once so many more have been made."""
        wanted, deadline = self.job.checkpoints() + number, time.monotonic() + PATIENCE
        while self.job.checkpoints() < wanted:
            if time.monotonic() > deadline:
                raise FlinkError(f"no checkpoint within {PATIENCE} s")
            time.sleep(0.2)
        last = self.job.manager.checkpoints(self.job.id)["latest"]["completed"] or {}
        return last.get("state_size", 0) / 1e6, last.get("end_to_end_duration", 0) / 1e3


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name:
        local = LocalBroker(Path(name) / "broker")
        try:
            local.start()
            _head("rows/message", "reports", "stream/s", "bounded/s", "ratio", "cores", "MB TM/w")
            for rows, reports in CASES:
                _backlog(local, Path(name) / f"rows-{rows}", rows, reports)
            _head("", "reports/s", "behind s", "made", "failed", "cores", "MB TM/w")
            _wide(local, Path(name) / "wide")
        except (DeployError, FlinkError, FaultError) as error:
            print(f"not measured: {error}")
        finally:
            local.stop()


def _backlog(local: LocalBroker, folder: Path, rows: int, reports: int) -> None:
    topic = ReportTopic(f"rows-{rows}", 1, PARTITIONS)
    bench = Bench(folder, local, plan(), topic, every=1_000)
    fill(bench.broker, topic, rows, reports)
    command = [sys.executable, "-m", "benchmarks.kafka", bench.broker.servers, str(topic)]
    output = subprocess.run(
        [*command, str(folder / "state")], check=True, capture_output=True, text=True
    ).stdout
    bounded = Measured(*json.loads(output))
    bench.job.session.start()
    try:
        bench.job.submit()
        first = _until(bench, lambda done: done.reports > 0)
        clock = bench.clock()
        last = _until(bench, lambda done: done.stepped >= bounded.reports)
        cores, held = bench.cores(clock), bench.memory()
        checkpoint = bench.checkpoint(2)
    finally:
        bench.job.stop()
    rate = (last.stepped - first.stepped) / (last.time - first.time)
    _line(
        rows,
        f"{bounded.reports:,}",
        f"{rate:,.0f}",
        f"{bounded.reports / bounded.wall:,.0f}",
        f"{rate * bounded.wall / bounded.reports:.2f}",
        cores=cores,
        held=held,
        checkpoint=checkpoint,
    )


class _Done(NamedTuple):
    """What a health document tells: when, s; reports read, and those that are in a state."""

    time: float
    reports: int
    stepped: int


def _until(bench: Bench, reached: Callable[[_Done], bool]) -> _Done:
    deadline, done = time.monotonic() + PATIENCE, None
    while time.monotonic() < deadline:
        if (document := bench.health()) is not None:
            say = {name: int(str(dict(document.health)[name])) for name in ("reports", *_STEPPED)}
            reports = say.pop("reports")
            done = _Done(document.revision / 1000, reports, sum(say.values()))
            if reached(done):
                return done
        time.sleep(0.2)
    raise FlinkError(f"after {PATIENCE} s the job has done {done}")


#: What becomes of a report that is not rejected.
_STEPPED = ("counted", "superseded", "duplicates", "revoked")


def _wide(local: LocalBroker, folder: Path) -> None:
    topic = ReportTopic("wide", 1, WIDE_PARTITIONS)
    bench = Bench(folder, local, load.plan_of(WIDE_SHARDS), topic, every=5_000)
    command = [sys.executable, "-m", "benchmarks.soak.load", str(local.client_file), str(topic)]
    command += ["--shards", str(WIDE_SHARDS), "--rate", str(RATE), "--seconds", str(PHASE)]
    bench.job.start()
    try:
        bench.checkpoint(1)
        _phase(bench, "idle", 0)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sending:
            _phase(bench, "loaded", RATE)
            sent = json.loads(sending.communicate()[0])
        _until(bench, lambda done: done.stepped >= sent["reports"])
        _phase(bench, "idle again", 0)
    finally:
        bench.job.stop()


def _phase(bench: Bench, name: str, rate: int) -> None:
    watched = WatchedStream(bench.broker, [bench.topic])
    clock, behind = bench.clock(), 0
    made, failed = bench.job.checkpoints(), bench.job.checkpoints("failed")
    while time.monotonic() - clock[0] < PHASE:
        time.sleep(LOOK)
        if rate and (document := bench.health()) is not None:
            offsets = document.health["offsets"]
            assert isinstance(offsets, dict)
            behind = max(behind, watched.lag(offsets).records)
    _line(
        name,
        f"{rate:,}",
        f"{behind * load.METRICS / rate:.1f}" if rate else "",
        bench.job.checkpoints() - made,
        bench.job.checkpoints("failed") - failed,
        cores=bench.cores(clock),
        held=bench.memory(),
        checkpoint=bench.checkpoint(),
    )


def _head(*names: str) -> None:
    print("  ".join(f"{name:>12}" for name in names[:-2]), end="  ")
    print(f"{'cores B/JM/TM/w':>20}  {names[-1]:>12}  {'checkpoint MB, s':>18}", flush=True)


def _line(*cells: object, cores: str, held: str, checkpoint: tuple[float, float]) -> None:
    size, seconds = checkpoint
    print("  ".join(f"{cell:>12}" for cell in cells), end="  ")
    print(f"{cores:>20}  {held:>12}  {f'{size:,.1f}, {seconds:.1f}':>18}", flush=True)


def _processor(pid: int | None) -> float:
    """Return the processor time of a process, s; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
