"""The command ``sotto flink`` before any Flink is there."""

from __future__ import annotations

import pytest

from clientsdk.testing import small_plan
from pipelines.flink.jobfolder import JobFolder, Known
from sotto.cli import main


def test_a_folder_without_a_job_is_told(tmp_path, capsys):
    for action in ("status", "savepoint", "stop", "cancel"):
        assert main(["flink", action, "--state", str(tmp_path)]) == 2
        assert "knows of no job: sotto flink run submits one" in capsys.readouterr().err


def test_a_flink_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["flink", "list", "--flink", "http://127.0.0.1:1"]) == 2
    assert "no job manager answers at http://127.0.0.1:1" in capsys.readouterr().err
    JobFolder(tmp_path).remember(Known("j", flink="http://127.0.0.1:1", id="1"))
    assert main(["flink", "status", "--state", str(tmp_path)]) == 2
    assert "make flink starts one here" in capsys.readouterr().err


def test_a_job_is_not_submitted_to_a_flink_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOTTO_FLINK_PYTHON", "python")
    (tmp_path / "plan.json").write_bytes(small_plan().to_json())
    given = [
        "flink",
        "run",
        "--state",
        str(tmp_path / "job"),
        "--plan",
        str(tmp_path / "plan.json"),
    ]
    given += ["--broker", "client.json", "--topic", "reports-e1-p4"]
    assert main([*given, "--flink", "http://127.0.0.1:1"]) == 2
    assert "no job manager answers" in capsys.readouterr().err
    assert main([*given, "--topic", "reports"]) == 2
    assert "must be a full name" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["flink", "--help"])
    said = capsys.readouterr().out
    assert "sotto flink run --state job --from latest" in said
    assert "would count all\nreports again" in said
