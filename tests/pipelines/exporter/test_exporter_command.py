"""The command: what it prints, where it listens, how it ends, and what it refuses."""

from __future__ import annotations

import urllib.request

import pytest
from serving import sotto
from watched import samples, value, watched

from sotto_cli import main


def test_once_prints_what_would_be_served(job, capsys):
    assert main(["exporter", "--state", str(job.state), "--once"]) == 0
    found = samples(capsys.readouterr().out)
    assert value(found, "sotto_run_generation") == 1
    assert "sotto_lag_bytes" not in found


def test_one_process_serves_several_jobs(job, tmp_path, capsys):
    """The second is another state directory of the same collector: it is told apart."""
    other = watched(tmp_path)
    given = ["--state", job.state, "--log", job.log, "--state", other.state, "--log", other.log]
    assert main(["exporter", "--once", "--state", str(tmp_path / "none"), *map(str, given)]) == 2
    assert "once for each --state" in capsys.readouterr().err
    assert main(["exporter", "--once", *map(str, given)]) == 0
    found = samples(capsys.readouterr().out)
    names = {dict(series)["collector"] for series in found["sotto_run_generation"]}
    assert names == {"tests.example", "tests.example (2)"}
    for name in names:
        assert value(found, "sotto_lag_records", collector=name) == 0


def test_nothing_there_yet_is_no_error(tmp_path, capsys):
    given = ["--state", str(tmp_path / "state"), "--log", str(tmp_path / "log"), "--once"]
    assert main(["exporter", *given]) == 0
    found = samples(capsys.readouterr().out)
    for source in ("state", "database", "log"):
        assert value(found, "sotto_source_status", source=source, status="missing") == 1
    assert not list(tmp_path.iterdir())


def test_where_it_cannot_listen_is_named(capsys):
    assert main(["exporter", "--state", "x", "--listen", "nowhere.invalid"]) == 2
    assert "--listen nowhere.invalid" in capsys.readouterr().err


@pytest.mark.real_randomness
def test_it_serves_on_loopback_until_it_is_told_to_stop(job):
    given = "--port", "0", "--state", job.state, "--log", job.log
    with sotto("exporter", *given) as (_, url):
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=300) as answer:
            assert answer.status == 200
            found = samples(answer.read().decode())
    assert value(found, "sotto_source_status", source="log", status="ok") == 1
