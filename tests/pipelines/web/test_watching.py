"""The pages' statements about the job itself, and the link of the overview to them."""

from __future__ import annotations

import errno
import os
import shutil
import time
from dataclasses import replace
from types import SimpleNamespace

import attacks
import pytest
from html_pages import Html
from invented_results import ask
from made_documents import project, projection
from moving_results import MovingResults
from report_logs import append, honest, write
from step_plans import DAY, plans

import sotto_cli
from pipelines.alerts.configuration import Configuration
from pipelines.alerts.watch import AlertWatch
from pipelines.bounded import driver
from pipelines.bounded.run import aggregate
from pipelines.exporter.arrivals import Arrival
from pipelines.exporter.lag import WatchedLog
from pipelines.exporter.readings import Reading, Status
from pipelines.results.reader import ResultsReader
from pipelines.sinks.sql import of_state
from pipelines.storage.directory import FullDiskError, LastRun, Problem
from pipelines.web import rendering, watching
from pipelines.web.access import Access
from pipelines.web.application import Site, application
from pipelines.web.snapshot import ResultsSnapshot
from pipelines.web.watching import Disk, JobWatch
from sotto.clocks import now_ms

GIB = 1 << 30


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counted")
    aggregate(write(folder / "log", honest(3, 1, 1)), folder / "state", plans())
    return folder


@pytest.fixture
def job(counted, tmp_path):
    shutil.copytree(counted, tmp_path / "job")
    return tmp_path / "job"


def watch_of(job):
    reader = ResultsReader(of_state(job / "state"), job / "state")
    places = {"state": job / "state", "log": job / "log"}
    return JobWatch(reader, job / "state", WatchedLog(job / "log"), places)


def pages_of(job, watch, *, public=False):
    reader = ResultsReader(of_state(job / "state"), job / "state")
    return application(Site(reader, Access(public=public), job / "state", None, watch))


def roomy(monkeypatch, free=100 * GIB, total=200 * GIB):
    usage = SimpleNamespace(free=free, total=total)
    monkeypatch.setattr(watching.shutil, "disk_usage", lambda path: usage)
    # The reports of these tests are of earlier years.
    monkeypatch.setattr(watching, "NO_REPORTS", 1 << 62)


def test_a_job_that_is_well_has_no_problem(job, monkeypatch):
    roomy(monkeypatch)
    watch = watch_of(job)
    assert watch.look().problems == []
    app = pages_of(job, watch)
    shown = Html(ask(app, "/health").text).text
    assert "Nothing is wrong with the job." in shown
    assert "107 GB of 215 GB" in shown
    assert "More about this" not in ask(app, "/").text


def test_a_run_that_failed_for_a_full_disk_is_on_every_screen(job, monkeypatch):
    roomy(monkeypatch)
    write(job / "log", honest(3, 2, 2))

    def full(*_):
        raise RuntimeError(f"while running a stage: {os.strerror(errno.ENOSPC)}: secret")

    with monkeypatch.context() as patch:
        patch.setattr(driver, "run", full)
        with pytest.raises(FullDiskError, match="not committed"):
            aggregate(job / "log", job / "state")
    note = LastRun.of(job / "state")
    assert (note.generation, note.problem) == (1, Problem.DISK)
    assert "secret" not in (job / "state" / LastRun.NAME).read_text()
    watch = watch_of(job)
    app = pages_of(job, watch)
    before = ask(app, "/revision").text
    watch.look()
    assert ask(app, "/revision").text != before
    overview = ask(app, "/")
    assert "The last run failed at" in Html(overview.text).text
    assert '<a href="/health">More about this</a>' in overview.text
    shown = Html(ask(app, "/health").text).text
    assert "its disk is full" in shown
    assert "a run is in progress, or interrupted, since" in shown
    public = pages_of(job, watch, public=True)
    assert "The last run" not in ask(public, "/").text
    aggregate(job / "log", job / "state")
    assert watch.look().problems == []


def test_a_note_is_left_although_the_disk_takes_no_other_file(job, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.storage.files.replace", full)
        LastRun.leave_failure(job / "state", Problem.DISK)
    note = LastRun.of(job / "state")
    assert (note.problem, note.failed is None) == (Problem.DISK, False)


def test_results_that_are_old_are_said_to_be(job, capsys):
    """By the page, the file and the terminal, whether or not any record waits."""
    note = LastRun.of(job / "state")
    replace(note, looked=note.looked - 85 * 86_400_000).leave(job / "state")
    watch = watch_of(job)
    watch.look()
    with ResultsReader(of_state(job / "state"), job / "state") as reader:
        file = rendering.static_file(ResultsSnapshot(reader, reader.revision(), job / "state"))
    assert sotto_cli.main(["estimates", "--state", str(job / "state")]) == 0
    for text in (ask(pages_of(job, watch), "/").text, file, capsys.readouterr().err):
        assert "The job has not looked for reports since" in text
        assert "their newest report came at" in text


def test_a_job_that_stands_still_is_said(job, monkeypatch):
    roomy(monkeypatch)
    note = LastRun.of(job / "state")
    replace(note, looked=note.looked - 3_600_000).leave(job / "state")
    watch = watch_of(job)
    (said,) = watch.look().problems
    assert said.startswith("The job has not looked for reports since")
    write(job / "log", honest(3, 2, 2))
    assert "records are not counted." in watch.look().problems[1]
    long_ago = time.time() - 3600
    (job / "state/intent.json").write_bytes(b"{}")
    os.utime(job / "state/intent.json", (long_ago, long_ago))
    assert any("state directory is damaged" in each for each in watch.look().problems)


@pytest.mark.parametrize(
    ("free", "total", "said"),
    [
        (0, GIB, "is full"),
        (GIB // 25, GIB, "nearly full: 42.9 MB left"),
        (GIB // 10, GIB, ""),
        (30 * GIB, 4000 * GIB, ""),
    ],
)
def test_a_disk_is_full_nearly_full_or_well(free, total, said):
    assert said in Disk("state and log", free, total).problem
    assert bool(said) == bool(Disk("state and log", free, total).problem)


def test_before_the_first_results_the_page_says_what_is_wrong(tmp_path, monkeypatch):
    roomy(monkeypatch, free=0)
    (tmp_path / "state").mkdir()
    watch = watch_of(tmp_path)
    watch.look()
    answer = ask(pages_of(tmp_path, watch), "/")
    assert answer.status == 503
    assert "The disk of the state is full" in answer.text


def test_reports_of_plans_that_the_job_was_not_given_are_a_problem(tmp_path, monkeypatch):
    roomy(monkeypatch)
    other = tuple(replace(each, plan="other") for each in plans())
    aggregate(write(tmp_path / "log", honest(3, 1, 1)), tmp_path / "state", other)
    (problem,) = watch_of(tmp_path).look().problems
    assert problem.endswith("reports are of plans the job was not given (sotto quarantine).")


def test_records_from_the_future_are_a_problem_for_a_day(job, monkeypatch):
    roomy(monkeypatch)
    log = job / "log"
    append(log, [(now_ms() + 3000 * DAY, b"ahead")] * 3, "leapt")
    aggregate(log, job / "state")
    (problem,) = watch_of(job).look().problems
    assert problem.startswith("3 records are in quarantine as future")
    assert "from leapt" in problem
    later = now_ms() + DAY
    monkeypatch.setattr("pipelines.web.watching.now_ms", lambda: later)
    assert not [each for each in watch_of(job).look().problems if "future" in each]


def test_a_silent_partition_is_named_with_its_rule(job, monkeypatch):
    roomy(monkeypatch)
    watch = watch_of(job)
    arrivals = [
        Arrival("reports-e1-p2/0", 1_700_007_200_000),
        Arrival("reports-e1-p2/1", None, True),
    ]
    seen = watch.look()
    watch.last = replace(seen, arrivals=Reading(Status.OK, arrivals))
    app = pages_of(job, watch)
    assert "Silent while others are not: reports-e1-p2/1." in Html(ask(app, "/").text).text
    shown = Html(ask(app, "/health").text).text
    assert "14 Nov 2023 22:13:20 UTC" not in shown
    assert "15 Nov 2023 00:13:20 UTC" in shown
    assert "while the others have got 1,000 each on average" in shown


def test_what_moved_and_what_is_poisoned_lead_from_the_overview(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "NO_REPORTS", 1 << 62)
    results = MovingResults(tmp_path)
    results.write({"red": [(0.2, 0.02)] * 20, "blue": [(0.7, 0.02)] * 20})
    moved = AlertWatch(results.reader(), Configuration(), tmp_path / "alerts.json")
    moved.look()
    site = Site(results.reader(), Access(), None, moved)
    app = application(site)
    assert "More about this" not in ask(app, "/").text
    before = site.revision()
    results.write({"red": [(0.5, 0.02)] * 2, "blue": [(0.7, 0.02)] * 2}, first=20)
    moved.look()
    assert site.revision() != before
    assert 'Moved: colour red. <a href="/alerts">' in ask(app, "/").text

    bad, estimates = attacks.results("page", 2_000, 0.2, attacks.repeat, 3)
    url = f"sqlite:///{tmp_path / 'poisoned.db'}"
    project(url, projection("attacked.example", "mine", 1, None, [([bad], estimates)]))
    shown = ask(application(Site(ResultsReader(url), Access())), "/").text
    assert "are not what honest devices send" in shown
    assert '<a href="/metrics/attacked.example/attacked/1/page?window=' in shown
