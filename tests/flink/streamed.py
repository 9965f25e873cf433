"""A topic of real devices' reports, and ``sotto stream`` that counts them on a Flink session."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from yesterday import publish

from clientsdk import Broker
from clientsdk.testing import small_plan
from deploy.flink.cluster import LocalFlink
from deploy.flink.operator import Operator
from deploy.kafka.broker import LocalBroker
from mechanisms.frozen import replace
from pipelines.beam.plans import LOOK_SECONDS
from pipelines.flink.rest import ENDED, JobStatus
from pipelines.results.tables import ESTIMATES, PERIODS, QUARANTINE, WINDOWS
from pipelines.sinks.sql import Results, of_state
from sotto.kafka.topics import ReportTopic
from sotto.plan.compiled import CompiledPlan
from sotto_cli import main

#: How long anything may take on a machine that has much else to do, in seconds.
PATIENCE = 600


def later_plan() -> CompiledPlan:
    """Return a second version of the plan, with another metric."""
    (metric,) = small_plan().metrics
    return replace(small_plan(), version=2, metrics=(replace(metric, name="shade"),))


class World:
    """Topics, a job, and what a run finds in the same topics."""

    def __init__(self, local: LocalBroker, session: LocalFlink, folder: Path) -> None:
        self.local, self.session, self.folder = local, session, folder
        self.broker = Broker.from_file(local.client_file)
        self.manager = Operator(session.address)
        self.first, self.second = ReportTopic(folder.name, 1, 4), ReportTopic(folder.name, 2, 2)
        self.topics = [self.first]
        self.plans = folder / "plans"
        self.plans.mkdir()
        self.database = f"sqlite:///{folder / 'sunk.db'}"
        self.devices = 0
        self.waiting: list[subprocess.Popen[str]] = []
        self.logs: list[Path] = []
        self.add_plan(small_plan())
        self.make_topic(self.first, "--sinks")

    def make_topic(self, topic: ReportTopic, *more: str) -> None:
        made = ["--epoch", str(topic.epoch), "--partitions", str(topic.partitions), *more]
        plan = next(self.plans.iterdir())
        self.sotto("topics", "create", topic.name, *made, "--plan", str(plan), *self._broker)

    def remake_topic(self, topic: ReportTopic) -> None:
        admin = KafkaAdminClient(**self.broker.options(30))
        admin.delete_topics([str(topic)])
        until(lambda: str(topic) not in admin.list_topics(), lambda: "the topic stays")
        admin.close()
        self.make_topic(topic)

    def add_plan(self, plan: CompiledPlan) -> None:
        made = self.folder / "made.json"
        made.write_bytes(plan.to_json())
        made.rename(self.plans / f"{plan.version}.json")

    def publish(self, devices: int, plan: CompiledPlan | None = None) -> int:
        """Let devices record yesterday and send both levels now; return how many reports."""
        first, self.devices = self.devices, self.devices + devices
        return publish(self.broker, self.topics[-1], devices, first, plan)

    def produce(self, *values: bytes) -> None:
        options = {"compression_type": "zstd", "max_request_size": 1 << 30}
        producer = KafkaProducer(**self.broker.options(30), **options)
        for value in values:
            producer.send(str(self.first), value, partition=1)
        producer.flush(30)
        producer.close()

    def submit(self, *options: str) -> str:
        """Start ``sotto stream``; return Flink's id of the job once all of it runs."""
        before = {job.id for job in self.manager.jobs()}
        process, log = self.wait(*options)

        def new() -> list[JobStatus]:
            assert process.poll() is None, log.read_text("utf-8")
            return [job for job in self.manager.jobs() if job.id not in before and job.well]

        (job,) = until(new, lambda: log.read_text("utf-8"))
        return job.id

    def wait(self, *options: str) -> tuple[subprocess.Popen[str], Path]:
        """Start ``sotto stream``; return its process, and the file with what it prints."""
        command = [sys.executable, "-m", "sotto", "stream", *self._broker]
        command += ["--state", str(self.folder / "job"), "--topic", str(self.first)]
        command += ["--plans", str(self.plans), "--publish-every=1s", "--linger=500ms", "--idle=5s"]
        command += ["--flink", self.session.address]
        command += [*self.session.options, "--checkpointing_interval=1000", *options]
        log = self.folder / f"stream-{len(self.waiting)}.log"
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, text=True)
        self.waiting.append(process)
        self.logs.append(log)
        return process, log

    def last_checkpoint(self, job: str) -> str:
        """Return the newest whole one of a job that has ended or whose manager was killed."""
        made = (self.session.folder / "checkpoints" / job).glob("chk-*/_metadata")
        newest = max(made, key=lambda path: int(path.parent.name.removeprefix("chk-")))
        return newest.parent.as_uri()

    def wait_for_checkpoint(self, job: str) -> None:
        """Return once one has been made that began after this."""

        def made() -> int:
            return int(self.manager.checkpoints(job)["counts"]["completed"])

        before = made()
        until(lambda: made() > before + 1, lambda: self.manager.failure(job))

    @contextmanager
    def restarted(self, job: str) -> Iterator[None]:
        """Return once all of a job that is done harm to runs again."""
        before = len(self.manager.failures(job))
        yield
        until(lambda: len(self.manager.failures(job)) > before, lambda: "the job has not failed")
        until(lambda: self.manager.job(job).well, lambda: self.manager.failure(job))

    def outage(self, job: str) -> None:
        """Stop the broker until readers wait for it, and start it again."""
        self.local.stop()
        log = self.session.task_manager.log_file
        waits = [f"{what} waits for the broker" for what in ("partitions of reports", r"@\S+/\d")]
        until(
            lambda: all(re.search(each, log.read_text("utf-8")) for each in waits),
            lambda: self.manager.failure(job),
        )
        self.local.start()

    def tables(self, url: str) -> dict[str, object]:
        with Results(url) as results:
            tables: dict[str, object] = {
                table.name.removeprefix("stored_"): sorted(
                    repr({k: v for k, v in row.items() if k not in ("revision", "closed")})
                    for row in results.table(table)
                )
                for table in (WINDOWS, ESTIMATES, PERIODS)
            }
            rejected: Counter[object] = Counter()
            for row in results.table(QUARANTINE):
                rejected[row["reason"]] += row["rows"]
        return {**tables, "rejected": dict(rejected)}

    def aggregated(self) -> dict[str, object]:
        """Return what ``sotto aggregate`` makes of the topics until now."""
        given = ["--plans", str(self.plans), "--state", str(self.folder / "state"), *self._broker]
        for topic in self.topics:
            given += ["--topic", str(topic)]
        self.sotto("aggregate", *given)
        return self.tables(of_state(self.folder / "state"))

    def sunk(self) -> dict[str, object]:
        """Return what ``sotto sink`` has brought into a database until now."""
        where = ["--database", self.database]
        self.sotto("sink", "--topic", f"{self.first.name}-estimates", *where, *self._broker)
        return self.tables(self.database)

    def until_plans_are_kept(self, number: int, seconds: float = 0) -> None:
        """Return once so many plans are in the job's folder, for so many seconds."""
        folder = self.folder / "job" / "plans"

        def kept() -> bool:
            came = [path.stat().st_mtime for path in folder.glob("*.json")]
            return len(came) == number and time.time() - max(came) >= seconds

        until(kept, lambda: f"{[*folder.iterdir()]}")

    def until_plans_are_known(self, number: int) -> None:
        """Return once so many plans are in the job's folder, and all workers have looked there."""
        self.until_plans_are_kept(number, LOOK_SECONDS + 1)

    def requeue(self) -> None:
        given = [word for path in self.plans.iterdir() for word in ("--plan", str(path))]
        self.sotto("requeue", "--topic", str(self.first), *given, *self._broker)
        self.sotto("requeue", "--state", str(self.folder / "state"), *given)

    def until_equal(self, job: str) -> dict[str, object]:
        """Return what a run finds, once the job's estimates are the same."""
        wanted = self.aggregated()
        assert wanted["estimates"]

        def words() -> str:
            unlike = [name for name, each in self.sunk().items() if each != wanted[name]]
            why = self.manager.failure(job)
            return f"{unlike}: {self.sunk()['rejected']} for {wanted['rejected']}; {why}"

        # A look takes as much of the machine as the job does.
        until(lambda: self.sunk() == wanted, words, pause=1.0)
        return wanted

    def sotto(self, *words: str) -> None:
        assert main(list(words)) == 0

    @property
    def _broker(self) -> list[str]:
        return ["--broker", str(self.local.client_file)]

    def close(self) -> None:
        for process in self.waiting:
            process.kill()
            process.wait()
        for job in self.manager.jobs():
            if job.state not in ENDED:
                self.manager.cancel(job.id)


def until(look: Callable, words: Callable[[], str], pause: float = 0.3):
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, words()
        time.sleep(pause)
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, 9)
