"""What the exporter reads of a streaming job at Flink's REST interface."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from watched import FakeEngine, exposition, samples, sunk, value, watched

from pipelines.exporter.engine import Engine, WatchedEngine
from pipelines.results.database import UnreadableError
from pipelines.storage.directory import StateDirectory

WORKERS = "[8]{Read_reports}.sotto_worker_bytes"
LOAD = "backPressuredTimeMsPerSecond,busyTimeMsPerSecond"


def job(name: str, began: int, running: int = 2) -> dict[str, Any]:
    tasks = {"running": running, "total": 2}
    return {"jid": f"{name}-{began}", "name": name, "state": "RUNNING", "start-time": began} | {
        "tasks": tasks
    }


#: What Flink 1.19.3 answers, shortened. A metric that is not known yet makes the answer empty.
ANSWERS: dict[str, Any] = {
    "/jobs/overview": {"jobs": [job("sotto-a", 5), job("sotto-a", 70), job("sotto-b", 90, 1)]},
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


@pytest.fixture
def flink() -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(ANSWERS[unquote(self.path)]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_job_is_found_by_the_name_that_its_documents_carry(flink):
    """The newest of those submitted under it."""
    found = WatchedEngine(flink).read("a")
    assert found == Engine(
        True, 4, 80, 10_000, 1000, 9, 12, 3, 1_795_460_450_000, 0.25, 0.9, 0.25, 9e8
    )


def test_a_job_that_flink_does_not_know_is_not_running(flink):
    assert WatchedEngine(flink).read("c") == Engine(running=False)


def test_a_job_manager_that_does_not_answer_is_a_source_that_cannot_be_read(tmp_path):
    engine = WatchedEngine("http://127.0.0.1:9")
    with pytest.raises(UnreadableError, match="job manager"):
        engine.read("a")
    job = watched(tmp_path)
    url = f"sqlite:///{tmp_path / 'sunk.db'}"
    sunk(job.state, url)
    found = samples(exposition(None, database=url, engine=engine))
    assert value(found, "sotto_source_status", source="engine", status="unreadable") == 1
    assert "sotto_engine_running" not in found


def test_the_engine_is_asked_for_the_job_whose_documents_the_database_has(tmp_path):
    job, engine = watched(tmp_path), FakeEngine()
    url = f"sqlite:///{tmp_path / 'sunk.db'}"
    sunk(job.state, url)
    found = samples(exposition(None, database=url, engine=engine))
    assert engine.asked == [StateDirectory(job.state).manifest().state]
    shown = {name: value(found, name) for name in found if name.startswith("sotto_engine_")}
    assert shown["sotto_engine_restarts_total"] == 2
    assert shown["sotto_engine_checkpoint_interval_seconds"] == 10
    assert shown["sotto_engine_checkpoint_age_seconds"] >= 60
    assert len(shown) == 14
