"""What is remembered of a submission, and which ones are refused, without a Flink or a broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from clientsdk.testing import small_plan
from pipelines.flink import launch
from pipelines.flink.jobfolder import JobFolder
from pipelines.flink.launch import LATEST, Asked, submit
from pipelines.flink.rest import FlinkError, Job
from sotto.errors import SottoError
from sotto.topics import FoundTopic, ReportTopic

HERE, THERE = "http://here:1", "http://there:1"


class Manager:
    """A job manager of which the jobs are given."""

    jobs_at: Mapping[str, list[Job]] = {}

    def __init__(self, url: str) -> None:
        self.url = url

    def version(self) -> str:
        return "2.2.1"

    def wait_for_slots(self, number: int, seconds: float) -> int:
        return number

    def jobs(self) -> list[Job]:
        if self.url not in self.jobs_at:
            raise FlinkError("no job manager answers")
        return self.jobs_at[self.url]


CLIENT = launch._client


@pytest.fixture
def found(monkeypatch) -> dict[str, FoundTopic]:
    """What a broker says of the topics; a client that submits whatever it is given."""
    topics = {"reports-e1-p4": FoundTopic(4, 1, {}, "first")}
    monkeypatch.setattr(Manager, "jobs_at", {HERE: []})
    monkeypatch.setattr(launch, "JobManager", Manager)
    monkeypatch.setattr(launch, "check_topics", lambda *_: topics)
    monkeypatch.setattr(launch, "begin", lambda *_, **__: None)
    monkeypatch.setattr(launch, "_client", lambda *_: "1f")
    return topics


@pytest.fixture
def asked(tmp_path) -> Asked:
    (tmp_path / "client.json").write_text('{"servers": "localhost:1"}', encoding="ascii")
    topics = [ReportTopic("reports", 1, 4)]
    return Asked(
        [small_plan()], tmp_path / "client.json", topics, {}, flink=HERE, python=sys.executable
    )


def running(name: str, state: str = "RUNNING") -> Job:
    return Job("1f", name, state, 4, 4)


def test_a_job_that_was_never_submitted_has_never_run(found, asked, tmp_path, monkeypatch):
    folder = JobFolder(tmp_path / "job")
    monkeypatch.setattr(launch, "_client", CLIENT)
    with pytest.raises(FlinkError, match="does not start: No such file"):
        submit(folder, replace(asked, python=str(tmp_path / "none")))
    with pytest.raises(FlinkError, match="did not submit the job"):
        submit(folder, replace(asked, environment={"PYTHONPATH": "/", "PYTHONHOME": "/"}))
    assert not folder.known.flink
    name = folder.known.job
    monkeypatch.setattr(launch, "_client", lambda *_: "1f")
    assert submit(folder, asked) == "1f"
    assert (folder.known.job, folder.known.id) == (name, "1f")


def test_a_job_that_may_have_been_submitted_has_run(found, asked, tmp_path, monkeypatch):
    folder = JobFolder(tmp_path / "job")

    def client(*_: object) -> str:
        Manager.jobs_at = {HERE: [running(folder.known.group, "FAILED")]}
        raise FlinkError("Flink's client did not submit the job")

    monkeypatch.setattr(launch, "_client", client)
    with pytest.raises(FlinkError, match="did not submit"):
        submit(folder, asked)
    with pytest.raises(FlinkError, match="has run before"):
        submit(folder, asked)


def test_a_client_that_does_not_end_may_have_submitted(found, asked, tmp_path, monkeypatch):
    folder = JobFolder(tmp_path / "job")

    def client(*_: object) -> str:
        raise SottoError("Flink's client did not end")

    monkeypatch.setattr(launch, "_client", client)
    with pytest.raises(SottoError, match="did not end"):
        submit(folder, asked)
    with pytest.raises(FlinkError, match="has run before"):
        submit(folder, asked)


def test_a_job_that_runs_on_another_flink_is_not_submitted_again(found, asked, tmp_path):
    folder = JobFolder(tmp_path / "job")
    submit(folder, asked)
    Manager.jobs_at = {HERE: [running(folder.known.group)], THERE: []}
    with pytest.raises(FlinkError, match="the job runs already"):
        submit(folder, replace(asked, flink=THERE, restore=LATEST))
    Manager.jobs_at = {THERE: []}
    with pytest.raises(FlinkError, match="no complete checkpoint"):
        submit(folder, replace(asked, flink=THERE, restore=LATEST))


def test_a_topic_that_was_made_again_is_refused(found, asked, tmp_path):
    folder = JobFolder(tmp_path / "job")
    submit(folder, asked)
    found["reports-requeue"] = FoundTopic(1, 1, {}, "new")
    submit(folder, replace(asked, restore="file:///s/1"))
    found["reports-e1-p4"] = FoundTopic(4, 1, {}, "second")
    with pytest.raises(FlinkError, match="reports-e1-p4 was deleted and made again"):
        submit(folder, replace(asked, restore="file:///s/1"))


def test_jobs_do_not_find_the_state_of_others(found, asked, tmp_path):
    """All of them may be told to keep theirs in one folder."""
    place = tmp_path / "place"
    folders = [JobFolder(tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        submit(folder, replace(asked, checkpoints=place.as_uri() + "/"))
    one, two = (folder.known for folder in folders)
    assert one.places == tuple(f"{place.as_uri()}/{one.group}{end}" for end in ("", "/savepoints"))
    made = place / one.group / "1f" / "chk-3"
    made.mkdir(parents=True)
    (made / "_metadata").touch()
    assert folders[0].latest() == made.as_uri()
    with pytest.raises(FlinkError, match="no complete checkpoint"):
        submit(folders[1], replace(asked, restore=LATEST))
    assert two.places != one.places


def test_savepoints_go_where_the_last_submission_says(found, asked, tmp_path):
    folder = JobFolder(tmp_path / "job")
    for place in ("file:///a", None, "file:///a"):
        known = folder.known
        restore = "file:///s/1" if known.flink else None
        submit(folder, replace(asked, checkpoints=place, restore=restore))
    assert folder.known.places[-1] == f"file:///a/{folder.known.group}/savepoints"
    assert len(folder.known.places) == 4
