"""``sotto stream`` where Flink runs the job already: it waits, and submits no second one."""

from __future__ import annotations

import pytest
from step_plans import category, plan

from pipelines.beam.submission import JobFolder
from pipelines.flink.rest import JobManager, JobStatus
from sotto_cli import main


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Return the command for a job that runs."""
    name = JobFolder(tmp_path).begin([plan(1, 4, category("c", 3, 0.5, 1))], {}, None, anew=False)
    jobs = [JobStatus("abc", f"sotto-{name}", "RUNNING", 1, 1, 0)]
    monkeypatch.setattr(JobManager, "jobs", lambda self: jobs)
    where = ["--kafka=127.0.0.1:9", "--topic=reports-e1-p1", "--flink=http://flink:8081"]
    return ["stream", f"--state={tmp_path}", *where, "--detach"]


def test_a_job_that_runs_is_said_and_not_submitted(given, capsys):
    assert main(given) == 0
    out, error = capsys.readouterr()
    assert out.startswith("runs already, with its own options: job ")
    assert out.endswith(", http://flink:8081/#/job/running/abc/overview\n")
    assert error == ""
    assert main([*given, f"--plans={given[1].partition('=')[2]}/plans"]) == 0
    assert "plans that come to the folder later wait" in capsys.readouterr().err


@pytest.mark.parametrize("more", ["--from-scratch", "--savepoint_path=file:///savepoints/one"])
def test_a_second_job_beside_it_is_refused(given, more, capsys):
    assert main([*given, more]) == 2
    assert "stop the job first, with a savepoint" in capsys.readouterr().err


def test_a_state_directory_is_no_job_s_folder(given, tmp_path, capsys):
    assert main(["aggregate", given[1], f"--log={tmp_path / 'log'}"]) == 2
    assert "is of a streaming job: --state must be another folder" in capsys.readouterr().err
    (tmp_path / "MANIFEST.json").touch()
    assert main(given) == 2
    assert "is of sotto aggregate: a streaming job has its own folder" in capsys.readouterr().err
