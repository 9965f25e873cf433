"""``sotto serve`` and ``sotto report``: what they are given, and mistakes."""

from __future__ import annotations

from invented_results import PLAN, write_results

from sotto_cli import main


def test_a_state_that_is_no_folder_yet_is_warned_of(capsys, tmp_path, monkeypatch):
    """The pages are served all the same: a job may make it later."""
    monkeypatch.chdir(tmp_path)
    served = []
    monkeypatch.setattr("pipelines.http.server.serve", lambda app, *_, **__: served.append(app))
    for there in (False, True):
        assert main(["serve", "--state", "nowhere", "--public", "--port", "0"]) == 0
        said = capsys.readouterr().err
        assert ("pages stay empty until a job makes it" in said) is not there
        assert said.count("nowhere") == 1 - there
        (tmp_path / "nowhere").mkdir(exist_ok=True)
    assert len(served) == 2


def test_a_report_is_written_whole_or_not_at_all(capsys, tmp_path):
    out, plan = tmp_path / "report.html", tmp_path / "plan.json"
    plan.write_bytes(PLAN.to_json())
    url = f"sqlite:///{tmp_path / 'results.db'}"
    given = ["report", "--database", url, "--plan", str(plan), "--out", str(out)]
    assert main(given) == 2
    assert "there are no results in" in capsys.readouterr().err
    write_results(tmp_path)
    assert main(given) == 0
    assert capsys.readouterr().out == f"{out}\n"
    before = out.read_text("utf-8")
    assert "Which theme" in before
    (tmp_path / "results.db").write_bytes(b"no database" * 1000)
    assert main(given) == 2
    assert "not a database" in capsys.readouterr().err
    assert out.read_text("utf-8") == before
    assert {each.name for each in tmp_path.iterdir()} <= {
        *(out.name, plan.name, "results.db", "results.db-wal", "results.db-shm")
    }


def test_a_terminal_shows_one_share_of_a_value_that_reports_tell_from_all_others(capsys, tmp_path):
    given = ["estimates", "--database", write_results(tmp_path), "--metric", "visits"]
    assert main(given) == 0
    shown = capsys.readouterr().out
    assert (shown.count("\n  group 0 "), shown.count("\n  0 ")) == (2, 0)
    assert shown.count("\n  2 to 4 ") == 2
    assert main([*given, "--all"]) == 0
    assert capsys.readouterr().out.count("\n  0 ") == 2
