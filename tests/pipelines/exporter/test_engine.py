"""Figures of a streaming job that the exporter reads at Flink's REST interface."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from local_server import Answer, LocalServer
from programs import needed
from prometheus_client import CollectorRegistry, start_http_server
from serving import ROOT, running, wait_until
from watched import FakeEngine, exposition, samples, value

from pipelines.exporter.database import WatchedResults
from pipelines.exporter.engine import Engine, WatchedEngine
from pipelines.exporter.health import JobsCollector, StreamReaders
from pipelines.results.database import UnreadableError
from pipelines.storage.directory import StateDirectory
from sotto.clocks import now_ms

WORKERS = "[8]{Read_reports}.sotto_worker_bytes"
LOAD = "backPressuredTimeMsPerSecond,busyTimeMsPerSecond"


def row(name: str, began: int, running: int = 2) -> dict[str, Any]:
    tasks = {"running": running, "total": 2}
    return {"jid": f"{name}-{began}", "name": name, "state": "RUNNING", "start-time": began} | {
        "tasks": tasks
    }


#: Answers of Flink 1.19.3, shortened. A metric that is not known yet makes the answer empty.
ANSWERS: dict[str, Any] = {
    "/jobs/overview": {"jobs": [row("sotto-a", 5), row("sotto-a", 70), row("sotto-b", 90, 1)]},
    "/jobs/sotto-a-70": {
        "vertices": [
            {"id": "r", "name": "[8]{Read reports, Decode reports, All notes}"},
            {"id": "c", "name": "[8]{Count reports, All notes}"},
            {"id": "i", "name": "Source: Impulse"},
        ]
    },
    "/jobs/sotto-a-70/checkpoints": {
        "counts": {"completed": 12, "failed": 3},
        "latest": {
            "completed": {"trigger_timestamp": 80, "end_to_end_duration": 9, "state_size": 1000},
            "restored": {"restore_timestamp": 75},
        },
    },
    "/jobs/sotto-a-70/checkpoints/config": {"interval": 10_000},
    "/jobs/sotto-a-70/metrics?get=numRestarts": [{"id": "numRestarts", "value": "4"}],
    "/jobs/sotto-a-70/vertices/r/subtasks/metrics": [{"id": "numBytesOut"}, {"id": WORKERS}],
    f"/jobs/sotto-a-70/vertices/r/subtasks/metrics?get={WORKERS}": [{"id": WORKERS, "sum": 9e8}],
    f"/jobs/sotto-a-70/vertices/r/subtasks/metrics?get={LOAD}": [
        {"id": "backPressuredTimeMsPerSecond", "max": 250.0},
        {"id": "busyTimeMsPerSecond", "max": "NaN"},
    ],
    f"/jobs/sotto-a-70/vertices/c/subtasks/metrics?get={LOAD}": [
        {"id": "backPressuredTimeMsPerSecond", "max": 100.0},
        {"id": "busyTimeMsPerSecond", "max": 900.0},
    ],
    "/jobs/sotto-a-70/vertices/c/subtasks/metrics?get=currentInputWatermark": [
        {"id": "currentInputWatermark", "min": 1.79546045e12}
    ],
    f"/jobs/sotto-a-70/vertices/i/subtasks/metrics?get={LOAD}": [],
    "/taskmanagers": {"taskmanagers": [{"id": "one"}]},
    "/taskmanagers/one/metrics?get=Status.JVM.Memory.Heap.Used,Status.JVM.Memory.Heap.Max": [
        {"id": "Status.JVM.Memory.Heap.Used", "value": "30"},
        {"id": "Status.JVM.Memory.Heap.Max", "value": "120"},
    ],
}


def played(answer: Callable[[str], Any]) -> LocalServer:
    """Play a job manager, given what it answers to a path."""
    return LocalServer(
        lambda asked: Answer(200, body=json.dumps(answer(unquote(asked.path))).encode())
    )


@pytest.fixture
def flink() -> Iterator[str]:
    with played(ANSWERS.__getitem__) as server:
        yield server.url


def test_a_job_is_found_by_the_name_that_its_documents_carry(flink):
    """The newest of those submitted under it."""
    found = WatchedEngine(flink).read("a")
    assert found == Engine(
        True, 4, 80, 10_000, 1000, 9, 12, 3, 1_795_460_450_000, 0.25, 0.9, 0.25, 9e8
    )


def test_a_job_that_flink_does_not_know_is_not_running(flink):
    assert WatchedEngine(flink).read("c") == Engine(running=False)


def test_a_job_manager_that_does_not_answer_is_a_source_that_cannot_be_read(database):
    engine = WatchedEngine("http://127.0.0.1:9")
    with pytest.raises(UnreadableError, match="job manager"):
        engine.read("a")
    found = samples(exposition(None, database=database, engine=engine))
    assert value(found, "sotto_source_status", source="engine", status="unreadable") == 1
    assert "sotto_engine_running" not in found


def test_the_engine_is_asked_for_the_job_whose_documents_the_database_has(job, database):
    engine = FakeEngine()
    found = samples(exposition(None, database=database, engine=engine))
    assert engine.asked == [StateDirectory(job.state).manifest().state]
    shown = {name: value(found, name) for name in found if name.startswith("sotto_engine_")}
    assert shown["sotto_engine_restarts_total"] == 2
    assert shown["sotto_engine_checkpoint_interval_seconds"] == 10
    assert shown["sotto_engine_checkpoint_age_seconds"] >= 60
    assert len(shown) == 14


class PlayedJob:
    """Flink's answers about a job: all is well with it, or nothing is."""

    def __init__(self, name: str) -> None:
        self._name, self._numbers, self.well = f"sotto-{name}", count(10), True

    def __call__(self, path: str) -> Any:
        """Answer as :data:`ANSWERS` does; the watermark rises only while all is well."""
        now, number = now_ms(), next(self._numbers)
        if path.endswith("=numRestarts"):
            return [{"id": "numRestarts", "value": str(0 if self.well else number)}]
        answer = ANSWERS[path.replace(self._name, "sotto-a")]
        if path == "/jobs/overview":
            return {"jobs": [{**row(self._name, 70, 2 if self.well else 1), "jid": "sotto-a-70"}]}
        if path.endswith("/checkpoints") and self.well:
            latest = {"completed": {"trigger_timestamp": now}, "restored": None}
            return {**answer, "latest": latest}
        if path.endswith("=currentInputWatermark") and self.well:
            return [{"id": "currentInputWatermark", "min": 1.79546045e12 + 1000 * number}]
        return answer


#: Alerts on the engine.
ENGINE_ALERTS = {
    "SottoEngineNotRunning",
    "SottoEngineRestarts",
    "SottoNoCheckpoint",
    "SottoWatermarkStands",
}


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Callable[[str], Any]]:
    """Run Prometheus over an exporter, minutes of the rules as seconds; give what asks it."""
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")
    (folder / "alerts.yml").write_text(re.sub(r"\b(\d+)m\b", r"\1s", rules), encoding="utf-8")
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            {"job_name": "sotto", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(settings), encoding="utf-8")
    command = [needed("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    log = folder / "prometheus.log"

    def port() -> list[str]:
        return re.findall(r'"Listening on" address=127.0.0.1:(\d+)', log.read_text("utf-8"))

    def ask(query: str) -> Any:
        url = f"http://127.0.0.1:{port()[0]}/api/v1/query?query={quote(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.loads(answer.read())["data"]["result"]

    with running([*command, "--web.listen-address=127.0.0.1:0"], log):
        # It listens before it answers queries.
        wait_until(lambda: "Server is ready to receive web requests" in log.read_text("utf-8"))
        yield ask


@pytest.mark.slow
@pytest.mark.real_randomness
def test_prometheus_fires_each_alert_on_an_engine_that_is_not_well(job, database, tmp_path):
    """The exporter reads a played Flink, and a real Prometheus the exporter, under our rules."""
    flink = PlayedJob(StateDirectory(job.state).manifest().state)
    registry = CollectorRegistry()
    with played(flink) as engine:
        readers = StreamReaders(WatchedResults(database, 0), [], {}, WatchedEngine(engine.url))
        registry.register(JobsCollector({"job": readers.readings}))
        server, thread = start_http_server(0, "127.0.0.1", registry)
        try:
            with prometheus(tmp_path, server.server_port) as ask:

                def firing() -> set[str]:
                    found = ask('ALERTS{alertstate="firing"}')
                    return {each["metric"]["alertname"] for each in found} & ENGINE_ALERTS

                wait_until(lambda: ask("count_over_time(sotto_engine_running[5m]) > 3"))
                # Both depend on values alone, not on how often a busy machine looks.
                assert not firing() & {"SottoEngineNotRunning", "SottoNoCheckpoint"}
                flink.well = False
                wait_until(lambda: firing() == ENGINE_ALERTS)
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
