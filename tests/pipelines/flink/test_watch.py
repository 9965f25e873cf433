"""Waiting for a submitted job: what Flink or a job server says of it, and which errors end it."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pipelines.flink.rest import FlinkError, JobManager
from pipelines.flink.watch import Ending, FlinkJob, ServedJob

LOST = """java.lang.RuntimeException: Error received from SDK harness for instruction 12: Traceback:
  File "reading.py", line 1, in process
pipelines.sources.base.LostError: the topic is gone [while running 'Read reports-ptransform-36']

\tat java.base/java.util.concurrent.CompletableFuture.get
Caused by: java.lang.RuntimeException: Error received from SDK harness: LostError
"""
OTHER = "io.Error: killed: localhost:50000\nCaused by: java.net.Error: killed\n\tat Thread.run"


class Flink:
    """A job manager with one job of ours."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.cancelled: list[str] = []
        self.away = False

    def begin(self, name: str, id: str, state: str = "RUNNING", began: int = 1) -> None:
        tasks = {"running": 1, "total": 1}
        job = {"jid": id, "name": name, "state": state, "start-time": began, "tasks": tasks}
        self.jobs.append(job)

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        if self.away:
            raise FlinkError("no job manager answers")
        if method == "PATCH":
            self.cancelled.append(path)
        if path.endswith("/exceptions"):
            entries = [{"stacktrace": trace, "exceptionName": "x"} for trace in self.failures]
            return {"exceptionHistory": {"entries": entries}}
        return {"jobs": self.jobs}


@pytest.fixture
def flink(monkeypatch):
    flink = Flink()
    monkeypatch.setattr(JobManager, "ask", lambda _, *words, **more: flink.ask(*words, **more))
    return flink


def found(flink: Flink) -> FlinkJob:
    flink.begin("sotto-a", "one")
    job = FlinkJob("http://flink:8081/")
    assert job.find("a")
    return job


def test_the_newest_job_of_a_name_is_found_unless_it_has_ended(flink):
    job = FlinkJob("http://flink:8081/")
    assert not job.find("a")
    flink.begin("sotto-a", "old", "CANCELED", 1)
    flink.begin("sotto-b", "other", "RUNNING", 9)
    assert not job.find("a")
    flink.begin("sotto-a", "new", "RESTARTING", 5)
    assert job.find("a")
    assert job.page == "http://flink:8081/#/job/running/new/overview"
    assert not job.find(None)


def test_an_engine_that_does_not_answer_after_a_submission_is_asked_again(flink, monkeypatch):
    flink.begin("sotto-a", "one")
    flink.away, said = True, list[str]()
    monkeypatch.setattr("time.sleep", lambda _: setattr(flink, "away", False))
    monkeypatch.setattr("time.monotonic", count(0, 10).__next__)
    assert FlinkJob("http://flink:8081/").wait_until_begun("a", said.append)
    assert said == ["submitted; waiting for Flink, for up to 120 s: no job manager answers"]


def test_a_job_that_begins_for_long_is_listed_and_has_not_begun(flink, monkeypatch):
    flink.begin("sotto-a", "one", "INITIALIZING")
    said = list[str]()
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("time.monotonic", count(0, 50).__next__)
    assert not FlinkJob("http://flink:8081/").wait_until_begun("a", said.append)
    (text,) = said
    assert text.endswith("the job is initializing: http://flink:8081/#/job/running/one/overview")


def test_a_job_that_fails_as_soon_as_it_is_submitted_is_found(flink, monkeypatch):
    flink.begin("sotto-a", "old", "CANCELED", 1)
    job = FlinkJob("http://flink:8081/")
    assert not job.find("a")
    states = iter([None, "INITIALIZING", "FAILED"])

    def wait(_: float) -> None:
        if (state := next(states)) is not None:
            flink.begin("sotto-a", "new", state, 5)
            del flink.jobs[1:-1]

    monkeypatch.setattr("time.sleep", wait)
    assert job.wait_until_begun("a", [].append)
    flink.failures = [OTHER]
    assert job.look().ending == Ending.FAILED
    assert not [*states]


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("RESTARTING", None),
        ("RUNNING", None),
        ("FINISHED", Ending.DONE),
        ("FAILED", Ending.FAILED),
        ("CANCELED", Ending.FAILED),
    ],
)
def test_a_job_ends_as_flink_says(flink, state, ending):
    job = found(flink)
    flink.jobs[0].update(state=state, tasks={"running": 1, "total": 2})
    flink.failures = [OTHER] * 2
    text, how = job.look()
    assert how == ending
    assert ("killed: localhost:50000" in text) == (state in ("FAILED", "RESTARTING"))
    assert text.startswith("running: some tasks wait") == (state == "RUNNING")
    assert not flink.cancelled


def test_what_no_restart_mends_ends_a_job_once_it_has_come_again(flink):
    job = found(flink)
    for failures in ([], [LOST], [OTHER, LOST], [LOST, OTHER, LOST]):
        flink.failures = failures
        assert job.look() == ("running", None)
    assert flink.cancelled == []
    flink.failures = [LOST, LOST, OTHER]
    assert job.look() == ("the topic is gone", Ending.LOST)
    assert flink.cancelled == ["/jobs/one?mode=cancel"]


def test_a_job_manager_that_is_away_ends_no_waiting_and_one_that_forgets_does(flink):
    job = found(flink)
    flink.away = True
    assert job.look() == ("no job manager answers", None)
    flink.away = False
    flink.jobs.clear()
    text, ending = job.look()
    assert ending == Ending.FAILED
    assert "--savepoint_path and its newest checkpoint, checkpoints/one/chk-N" in text


def test_a_job_server_that_is_away_ends_no_waiting():
    class Result:
        @property
        def state(self) -> str:
            raise grpc.RpcError

    text, ending = ServedJob(Result(), flink=True).look()
    assert ending is None
    assert "--flink" in text
    hint = "; the engine's page shows whether tasks wait for free slots"
    for state, flink, *expected in (
        ("RUNNING", True, f"running{hint}", None),
        ("RUNNING", False, "running", None),
        ("STARTING", True, "starting", None),
        ("DONE", True, "done", Ending.DONE),
        ("CANCELLED", True, "cancelled", Ending.FAILED),
    ):
        assert [*ServedJob(SimpleNamespace(state=state), flink=flink).look()] == expected
