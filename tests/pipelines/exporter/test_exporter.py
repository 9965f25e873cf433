"""The exporter says what is committed, projected and waiting, in whatever state that is."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from committed_states import projected
from prometheus_client.parser import text_string_to_metric_families
from report_logs import START, append
from step_plans import plans
from waiting import at_once, wait_until
from watched import (
    CANDIDATES,
    exposition,
    lag_of,
    late_messages,
    samples,
    streaming,
    value,
    watched,
)

from docs.writers import metrics as page_of_metrics
from pipelines.bounded.run import aggregate
from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.database import WatchedResults
from pipelines.exporter.families import Exposed, Snapshot, families
from pipelines.exporter.health import JobsCollector
from pipelines.exporter.lag import WatchedLog
from pipelines.sinks.sql import of_state
from pipelines.storage.directory import StateDirectory
from sotto.clocks import now_ms
from sotto.log.reader import LogReader, partitions
from sotto.wire.reasons import Reason

ROOT = Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path):
    return watched(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_reports_and_budgets_are_those_of_the_job(job):
    found = samples(exposition(job.state, job.log))
    manifest, tables = StateDirectory(job.state).manifest(), projected(job.state)
    assert value(found, "sotto_run_generation") == manifest.generation == 1
    assert value(found, "sotto_reports_read_total") == manifest.tally.reports > 0
    assert value(found, "sotto_reports_duplicates_total") == manifest.tally.duplicates > 0
    rejected = {str(row["reason"]): row["rows"] for row in tables["quarantine"]}
    for reason in Reason:
        said = value(found, "sotto_reports_rejected_total", reason=reason.label)
        assert said == rejected.get(reason.label, 0)
    accepted = found["sotto_reports_accepted"]
    assert sum(accepted.values()) == manifest.tally.counted
    assert sum(found["sotto_reports_by_level"].values()) == manifest.tally.counted
    for row in tables["periods"]:
        label = time.strftime("%Y-%m-%d", time.gmtime(int(str(row["period_start"])) / 1000))
        for audit in ("accepted", "observed"):
            spent = value(found, "sotto_period_spent_epsilon", period=label, audit=audit)
            assert spent == pytest.approx(int(str(row[audit])) / 1e6)
            most = value(found, "sotto_period_spent_max_epsilon", period=label, audit=audit)
            assert most == pytest.approx(int(str(row[f"most_{audit}"])) / 1e6)
            ratio = value(found, "sotto_period_spent_max_ratio", period=label, audit=audit)
            assert ratio == pytest.approx(most / 4)
        assert value(found, "sotto_period_closed", period=label) == row["closed"]
    live = [totals for period, totals in manifest.audit().items() if (period, 0) in manifest.states]
    assert value(found, "sotto_state_chains") == sum(totals.chains for totals in live) > 0
    assert value(found, "sotto_period_allowed_epsilon") == 4
    assert {v for k, v in found["sotto_period_revoked_pseudonyms"].items()} >= {1}


def test_estimates_are_those_of_the_newest_windows(job):
    found = samples(exposition(job.state))
    rows = [row for row in projected(job.state)["estimates"] if row["value"] is not None]
    key = ("plan", "version", "metric")
    newest = {tuple(row[name] for name in key): 0 for row in rows}
    for row in rows:
        at = tuple(row[name] for name in key)
        newest[at] = max(newest[at], int(str(row["window_start"])))
    rows = [row for row in rows if newest[tuple(row[n] for n in key)] == row["window_start"]]
    assert value(found, "sotto_estimates_exposed") == len(rows) > 100
    assert value(found, "sotto_estimates_omitted") == 0
    for row in rows:
        names = (*key, "kind", "item", "unit", "method")
        labels = {name: str(row[name] or "") for name in names}
        assert value(found, "sotto_estimate", **labels) == pytest.approx(row["value"])
        for column in ("standard_error", "low", "high"):
            labels["collector"] = str(row["collector"])
            series = found[f"sotto_estimate_{column}"].get(frozenset(labels.items()))
            assert series == (None if row[column] is None else pytest.approx(row[column]))


@pytest.mark.parametrize("most", [0, 40])
def test_the_number_of_series_is_bounded_and_every_metric_has_its_share(job, most):
    everything = samples(exposition(job.state, max_series=10**6))
    found = samples(exposition(job.state, max_series=most))
    names = ("", "_standard_error", "_low", "_high")
    assert sum(len(found.get(f"sotto_estimate{name}", {})) for name in names) <= most
    exposed, omitted = (value(found, f"sotto_estimates_{n}") for n in ("exposed", "omitted"))
    assert exposed == most // 4
    assert exposed + omitted == value(everything, "sotto_estimates_exposed")
    metrics = {dict(labels)["metric"] for labels in found.get("sotto_estimate", {})}
    if most >= 40:
        assert metrics == {dict(k)["metric"] for k in everything["sotto_estimate"]}


def test_labels_come_from_plans_alone(job):
    text = exposition(job.state, job.log)
    manifest = StateDirectory(job.state).manifest()
    for secret in (manifest.key.hex(), manifest.state, *manifest.positions):
        assert secret not in text
    assert not re.search(r"[0-9a-f]{32}", text)
    names = {metric.name for plan in plans() for metric in plan.metrics}
    listed = {v for plan in plans() for metric in plan.metrics for v in metric.labels}
    for series in samples(text).values():
        for labels in map(dict, series):
            assert labels.get("metric", "colour") in names
            assert labels.get("plan", "step") == "step"
            item, kind = labels.get("item", ""), labels.get("kind", "")
            if kind == "share":
                assert item in listed
            elif kind == "string":
                assert item in {"home", "away"}
            else:
                assert re.fullmatch(r"[0-9.]*", item)


def test_the_page_lists_what_is_exposed(job, tmp_path):
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    assert page == page_of_metrics.page(), "write it again with `make docs`"
    shown, streamed = exposition(job.state, job.log), streaming(job.state, tmp_path)
    found = samples(shown)
    both = samples(streamed) | found
    official = [each for family in text_string_to_metric_families(shown) for each in family.samples]
    assert len(official) == sum(map(len, found.values()))
    for each in official:
        assert found[each.name][frozenset(each.labels.items())] == each.value
    helped = set(re.findall(r"^# HELP (\S+)", shown + streamed, re.MULTILINE))
    # Those of alerts are there with a file of alerts alone, which has tests of its own.
    of_alerts = {
        name for name in CATALOGUE if name.startswith(("sotto_alert", "sotto_estimate_moved"))
    }
    assert len(of_alerts) == 4
    assert helped == set(CATALOGUE) - of_alerts
    for name in helped:
        described = CATALOGUE[name]
        assert f"# TYPE {name} {described.type}" in shown + streamed
        labels = {"collector", *described.labels}
        assert all({key for key, _ in series} == labels for series in both[name])


def test_nothing_is_written_and_no_lock_is_needed(copy):
    before = contents(copy.state), contents(copy.log)
    with StateDirectory(copy.state).lock():
        found = samples(exposition(copy.state, copy.log))
    assert value(found, "sotto_source_status", source="state", status="ok") == 1
    assert (contents(copy.state), contents(copy.log)) == before


def test_the_lag_is_what_no_run_has_taken(copy):
    nothing = dict.fromkeys(("bytes", "records", "partitions", "seconds"), 0)
    assert lag_of(copy.state, copy.log) == nothing
    sent = late_messages(7)
    append(copy.log, sent)
    size = sum(16 + len(one.message) for one in sent)
    age = pytest.approx(now_ms() / 1000 - sent[0].append / 1000, abs=3600)
    found = lag_of(copy.state, copy.log)
    assert found == {"bytes": size, "records": 7, "partitions": 1, "seconds": age}
    aggregate(copy.log, copy.state, plans(), candidates=CANDIDATES)
    assert lag_of(copy.state, copy.log) == nothing
    assert value(samples(exposition(copy.state)), "sotto_run_generation") == 2


def test_a_long_lag_is_extrapolated(copy, monkeypatch):
    append(copy.log, late_messages(400))
    monkeypatch.setattr("pipelines.exporter.lag.LOOK_BYTES", 8192)
    monkeypatch.setattr("pipelines.exporter.lag._LEAST_LOOK", 4096)
    taken = StateDirectory(copy.state).manifest().positions
    assert WatchedLog(copy.log).lag(taken, None).records == pytest.approx(400, rel=0.1)


def test_a_log_of_which_nothing_is_taken_is_all_lag(copy):
    none = copy.state.parent / "none"
    found, lag = samples(exposition(none, copy.log)), lag_of(none, copy.log)
    assert lag["bytes"] == sum(LogReader(lane).end() for lane in partitions(copy.log))
    assert lag["seconds"] == pytest.approx(now_ms() / 1000 - START / 1000, rel=1)
    assert value(found, "sotto_source_status", source="state", status="missing") == 1
    assert value(found, "sotto_source_status", source="database", status="missing") == 1


def test_a_run_under_way_is_seen(copy):
    append(copy.log, late_messages(3))

    seen = {}

    def checkpoint(step: str) -> None:
        seen[step] = samples(exposition(copy.state, copy.log))

    aggregate(copy.log, copy.state, plans(), candidates=CANDIDATES, checkpoint=checkpoint)
    assert len(seen) > 5
    for step, found in seen.items():
        for source in ("state", "database", "log"):
            assert value(found, "sotto_source_status", source=source, status="ok") == 1, step
    assert value(seen["begun"], "sotto_run_in_progress") == 1
    assert value(seen["committed"], "sotto_run_generation") == 2
    assert value(seen["committed"], "sotto_database_behind_generations") == 1
    after = samples(exposition(copy.state, copy.log))
    assert value(after, "sotto_run_in_progress") == 0
    assert value(after, "sotto_database_behind_generations") == 0
    assert 0 < value(after, "sotto_run_duration_seconds") < 3600
    assert value(after, "sotto_run_age_seconds") < 3600


def damage(path: Path) -> None:
    path.write_bytes(b'{"format":1}')


@pytest.mark.parametrize(
    ("source", "file", "action", "status"),
    [
        ("state", "MANIFEST.json", damage, "damaged"),
        ("state", "MANIFEST.json", Path.unlink, "missing"),
        ("state", "logs", shutil.rmtree, "unreadable"),
        ("state", "plans", shutil.rmtree, "unreadable"),
        ("database", "results.db", Path.unlink, "missing"),
        ("database", "results.db", damage, "damaged"),
        ("database", "results.db", lambda path: path.write_bytes(b""), "missing"),
    ],
)
def test_what_is_broken_is_a_metric(copy, source, file, action, status):
    action(copy.state / file)
    found = samples(exposition(copy.state, copy.log))
    assert value(found, "sotto_source_status", source=source, status=status) == 1
    other = "database" if source == "state" else "state"
    assert value(found, "sotto_source_status", source=other, status="ok") == 1
    if source == "state":
        assert "sotto_estimate" in found
        log = "ok" if status == "missing" else "unreadable"
        assert value(found, "sotto_source_status", source="log", status=log) == 1
    assert "sotto_reports_rejected_total" in found


def test_a_damaged_note_hides_only_itself(copy):
    damage(copy.state / "last_run.json")
    found = samples(exposition(copy.state, copy.log))
    assert "sotto_run_age_seconds" not in found
    assert value(found, "sotto_source_status", source="state", status="ok") == 1


def test_a_database_that_is_written_to_is_read_as_of_its_last_commit(copy):
    database = WatchedResults(of_state(copy.state), 2000)
    with closing(sqlite3.connect(copy.state / "results.db")) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE meta SET projected_generation = 7")
        assert [each.health.generation for each in database.read().values()] == [1]
        writer.commit()
        assert [each.health.generation for each in database.read().values()] == [7]


def test_what_has_not_changed_is_not_read_again(copy, monkeypatch):
    database = WatchedResults(of_state(copy.state), 2000)
    (first,) = database.read().values()
    monkeypatch.setattr("pipelines.exporter.database._windows", None)
    (again,) = database.read().values()
    assert again.estimates is first.estimates


def test_a_scrape_does_not_wait_for_a_reading_that_hangs():
    hangs, go = threading.Event(), threading.Event()

    def readers(before: Sequence[Snapshot]) -> Iterator[Sequence[Snapshot]]:
        hung = hangs.is_set() and go.wait(600)
        yield [Snapshot("tests.example", 2000 if hung else 1000, 0.5)]

    def scraped() -> dict[str, float]:
        return {f.name: f.samples[0].value for f in health.collect()}

    health = JobsCollector({"job": readers}, fresh=0.0, deadline=0.1, clock=lambda: 5000)
    wait_until(lambda: scraped().get("sotto_exporter_read_age_seconds") == 4)
    hangs.set()
    for _ in range(3):
        exceeded = scraped()["sotto_exporter_deadline_exceeded"]
    again = scraped()
    assert again["sotto_exporter_deadline_exceeded"] == exceeded + 1
    assert again["sotto_exporter_read_age_seconds"] == 4
    go.set()
    wait_until(lambda: scraped()["sotto_exporter_read_age_seconds"] == 3)


def test_scrapes_at_once_share_a_reading():
    number = 0

    def readers(before: Sequence[Snapshot]) -> Iterator[Sequence[Snapshot]]:
        nonlocal number
        number += 1
        yield [Snapshot("tests.example", 0, 0.1)]

    health = JobsCollector({"job": readers}, fresh=60)
    at_once(lambda _: list(health.collect()), range(8))
    list(health.collect())
    assert number == 1


def test_before_the_first_reading_there_is_little_to_say():
    (family,) = families([Exposed("state", 3, None)], 0)
    assert family.name == "sotto_exporter_deadline_exceeded"
    assert family.samples[0].labels == {"collector": "state"}
