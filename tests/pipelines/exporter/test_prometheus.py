"""Prometheus takes what the exporter serves; rules and dashboard ask for what there is."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
import yaml
from moving_results import MovingResults
from programs import needed
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from watched import exposition, streaming, watched

from pipelines.alerts.configuration import Configuration
from pipelines.alerts.watch import AlertWatch
from pipelines.exporter.alerts import KeptAlerts
from pipelines.exporter.catalogue import CATALOGUE
from pipelines.results.tables import ALARMS, WINDOWS
from pipelines.sinks.sql import Results
from pipelines.storage.directory import Problem

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
VARIABLES = dict.fromkeys(("$instance", "$collector", "$plan", "$metric", "$kind"), ".*")


def alerts() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def dashboard() -> dict[str, Any]:
    path = DEPLOY / "grafana" / "dashboards" / "sotto.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def queries() -> dict[str, str]:
    """Return every query of the dashboard, all variables chosen, by panel and target."""
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            for name, chosen in VARIABLES.items():
                query = query.replace(name, chosen)
            assert "$" not in query
            found[f"{panel['title']} {target['refId']}"] = query
    return found


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return watched(tmp_path_factory.mktemp("prometheus"))


def test_rules_and_dashboard_ask_for_metrics_that_exist():
    variables = [variable["definition"] for variable in dashboard()["templating"]["list"]]
    asked = [*alerts().values(), *queries().values(), *variables]
    named = {name for query in asked for name in re.findall(r"\bsotto_\w+", query)}
    assert named <= set(CATALOGUE)
    shown = {name for query in queries().values() for name in re.findall(r"\bsotto_\w+", query)}
    assert len(shown) > 30


def test_every_alert_has_a_runbook_and_names_it():
    """An alert has a section in docs/operate/runbooks.md, with these four parts."""
    text = (DEPLOY.parent / "docs" / "operate" / "runbooks.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(alerts())
    for name, section in sections.items():
        parts = re.findall(r"^\*\*(\w+)\*\* (.+)$", section, re.MULTILINE)
        assert [part for part, _ in parts] == ["Means", "Look", "Do", "Verify"], name
        named = set(re.findall(r"\bsotto_\w+", section))
        assert named <= set(CATALOGUE), name
    # Every reason that a run fails for has advice on what to do.
    assert {each for each in Problem if f"`{each}`" not in sections["SottoRunFailed"]} == set()
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            anchor = f"docs/operate/runbooks.md#{rule['alert'].lower()}"
            assert rule["annotations"]["runbook_url"].endswith(anchor)
            assert rule["annotations"]["summary"]


def test_panels_do_not_overlap_and_name_the_provisioned_source():
    sources = DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    (source,) = yaml.safe_load(sources.read_text(encoding="utf-8"))["datasources"]
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == source["uid"]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_exposition_keeps_to_the_conventions(job):
    result = subprocess.run(
        [needed("promtool"), "check", "metrics"],
        input=exposition(job.state, job.log),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


#: For every alert, series that make it fire; twice the longest delay goes by.
FAULTS = {
    "SottoExporterDown": {'up{job="sotto"}': "0x200"},
    "SottoSourceBroken": {'sotto_source_status{source="state",status="damaged"}': "1x200"},
    "SottoReadingSlow": {"sotto_exporter_read_age_seconds": "500x200"},
    "SottoReadingSlow, and none": {"sotto_exporter_deadline_exceeded_total": "1x200"},
    "SottoNotLooking": {"sotto_run_check_age_seconds": "901x200"},
    "SottoRunFailed": {'sotto_run_failed{problem="disk"}': "1x200"},
    "SottoNoRun": {"sotto_run_age_seconds": "1801x200", "sotto_lag_partitions": "1x200"},
    "SottoLag": {"sotto_lag_seconds": "3601x200"},
    "SottoFutureRecords": {"sotto_future_records_total": "0x170 674x30"},
    "SottoNoDocument": {"sotto_document_age_seconds": "901x200", "sotto_lag_partitions": "1x200"},
    "SottoNoProgress": {
        'sotto_partition_offset{partition="reports-e1-p2/0"}': "12x200",
        'sotto_partition_lag_records{partition="reports-e1-p2/0"}': "7x200",
        # Beside it one that is read.
        'sotto_partition_offset{partition="reports-e1-p2/1"}': "12+5x200",
        'sotto_partition_lag_records{partition="reports-e1-p2/1"}': "7x200",
    },
    "SottoEngineNotRunning": {"sotto_engine_running": "1x100 0x100"},
    "SottoEngineRestarts": {"sotto_engine_restarts_total": "0x170 1 2x29"},
    "SottoNoCheckpoint": {
        "sotto_engine_checkpoint_age_seconds": "101x200",
        "sotto_engine_checkpoint_interval_seconds": "10x200",
    },
    "SottoWatermarkStands": {"sotto_engine_watermark_timestamp_seconds": "0+60x100 6000x100"},
    "SottoSinkBehind": {"sotto_sink_lag_records": "3x200"},
    "SottoDatabaseBehind": {"sotto_database_behind_generations": "1x200"},
    "SottoQuarantineRate": {
        'sotto_reports_rejected_total{reason="late"}': "0+6x200",
        "sotto_reports_read_total": "0+100x200",
    },
    "SottoPlanUnknown": {'sotto_reports_rejected_total{reason="unknown_plan"}': "0+1x200"},
    "SottoLogCorrupt": {'sotto_reports_rejected_total{reason="corrupt_log"}': "0+1x200"},
    "SottoPseudonymsRevoked": {
        'sotto_period_revoked_pseudonyms{period="a",reason="over_budget"}': "2x200",
        'sotto_period_pseudonyms{period="a"}': "1000x200",
    },
    "SottoPoisoned": {
        'sotto_poisoning_alarms{plan="p",version="1",metric="m",kind="levels"}': "1x200"
    },
    "SottoBudgetExceeded": {'sotto_period_spent_max_ratio{audit="accepted"}': "1.01x200"},
    "SottoEstimateMoved": {'sotto_estimate_moved_timestamp_seconds{metric="m"}': "10000x200"},
    "SottoAlertsUndelivered": {'sotto_alerts_undelivered{file="f"}': "1x200"},
    "SottoAlertsStale": {'sotto_alerts_evaluated_timestamp_seconds{file="f"}': "0x100 -170000x100"},
    "SottoNoReports": {"sotto_clock_timestamp_seconds": "-700000x200"},
    "SottoEstimatesStale": {
        "sotto_clock_timestamp_seconds": "3100x200",
        'sotto_estimate_window_start_timestamp_seconds{plan="p",metric="m",version="1"}': "0x200",
        'sotto_estimate_window_end_timestamp_seconds{plan="p",metric="m",version="1"}': "1000x200",
        'sotto_newest_window_end_timestamp_seconds{plan="p",metric="m",version="1"}': "1000x200",
        'sotto_metric_first_release_seconds{plan="p",metric="m",version="1"}': "1000x200",
    },
}
#: The same series where all is well.
WELL = {
    'up{job="sotto"}': "1x200",
    'sotto_source_status{source="state",status="ok"}': "1x200",
    'sotto_source_status{source="state",status="damaged"}': "0x200",
    "sotto_exporter_read_age_seconds": "5x200",
    "sotto_run_check_age_seconds": "20x200",
    # A run that failed, and the next one did not.
    'sotto_run_failed{problem="broker"}': "0x100 1 1 0x98",
    "sotto_run_age_seconds": "90000x200",
    "sotto_future_records_total": "674x200",
    "sotto_lag_partitions": "0x200",
    "sotto_lag_seconds": "0x200",
    "sotto_document_age_seconds": "90000x200",
    # Always behind, and read; idle, and read to its end; given a record now and then.
    'sotto_partition_offset{partition="reports-e1-p4/0"}': "0+9x200",
    'sotto_partition_lag_records{partition="reports-e1-p4/0"}': "7x200",
    'sotto_partition_offset{partition="reports-e1-p4/1"}': "5x200",
    'sotto_partition_lag_records{partition="reports-e1-p4/1"}': "0x200",
    'sotto_partition_offset{partition="reports-e1-p4/2"}': "5x170 6x30",
    'sotto_partition_lag_records{partition="reports-e1-p4/2"}': "0x169 1 0x30",
    # Restarted once, and soon well again.
    "sotto_engine_running": "1x170 0 1x29",
    "sotto_engine_restarts_total": "0x171 1x29",
    "sotto_engine_checkpoint_age_seconds": "9x170 70 9x29",
    "sotto_engine_checkpoint_interval_seconds": "10x200",
    "sotto_engine_watermark_timestamp_seconds": "0+60x200",
    "sotto_sink_lag_records": "0 5 0 9 7 0 3x40 0x150",
    "sotto_database_behind_generations": "0x200",
    'sotto_reports_rejected_total{reason="late"}': "0+4x200",
    'sotto_reports_rejected_total{reason="unknown_plan"}': "7x200",
    'sotto_reports_rejected_total{reason="corrupt_log"}': "7x200",
    "sotto_reports_read_total": "0+100x200",
    'sotto_period_revoked_pseudonyms{period="a",reason="over_budget"}': "1x200",
    'sotto_period_pseudonyms{period="a"}': "1000x200",
    'sotto_poisoning_alarms{plan="p",version="1",metric="m",kind="levels"}': "0x200",
    'sotto_period_spent_max_ratio{audit="accepted"}': "1x200",
    'sotto_period_spent_max_ratio{audit="observed"}': "3x200",
    'sotto_estimate_moved_timestamp_seconds{metric="m"}': "-80000x200",
    'sotto_alerts_undelivered{file="f"}': "2x50 0 2x50 0 2x50 0 2x50",
    'sotto_alerts_evaluated_timestamp_seconds{file="f"}': "0x200",
    "sotto_clock_timestamp_seconds": "2900x200",
    'sotto_estimate_window_start_timestamp_seconds{plan="p",metric="m",version="1"}': "-5000x200",
    'sotto_estimate_window_end_timestamp_seconds{plan="p",metric="m",version="1"}': "-4000x200",
    'sotto_newest_window_end_timestamp_seconds{plan="p",metric="m",version="1"}': "-4000x200",
    'sotto_estimate_window_start_timestamp_seconds{plan="p",metric="m",version="2"}': "0x200",
    'sotto_estimate_window_end_timestamp_seconds{plan="p",metric="m",version="2"}': "1000x200",
    'sotto_newest_window_end_timestamp_seconds{plan="p",metric="m",version="2"}': "1000x200",
    'sotto_metric_first_release_seconds{plan="p",metric="m",version="2"}': "1000x200",
}


def check_with_promtool(folder, cases):
    """Let promtool say of some series what rules and queries make of them."""
    shutil.copy(RULES, folder / "alerts.yml")
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "5m", "tests": cases}
    (folder / "test.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    command = [needed("promtool"), "test", "rules", "test.yml"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def case_of(series, results):
    return {
        "interval": "1m",
        "input_series": [{"series": s, "values": values} for s, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": time, "exp_samples": [{"labels": "{}", "value": number}]}
            for (query, time), number in results.items()
        ],
    }


@pytest.mark.slow
def test_every_alert_fires_when_it_should_and_no_other_time(tmp_path):
    """The expression with its delay: a fault each, and a job with which all is well."""

    def case(series, firing):
        """Return how many alerts of some names fire after three hours."""
        query = 'count(ALERTS{alertname="%s",alertstate="firing"}) or vector(0)'
        return case_of(series, {(query % name, "3h"): number for name, number in firing.items()})

    named = [(name.partition(",")[0], series) for name, series in FAULTS.items()]
    assert {name for name, _ in named} == set(alerts())
    cases = [case(series, {name: 1}) for name, series in named]
    check_with_promtool(tmp_path, [*cases, case(WELL, dict.fromkeys(alerts(), 0))])


def alarmed(folder: Path) -> str:
    """Return what is exposed of results that moved, and of which some are poisoned."""
    results = MovingResults(folder)
    results.write({"red": [(0.2, 0.02)] * 19 + [(0.5, 0.02)] * 2})
    path = folder / "alerts.json"
    watch = AlertWatch(results.reader(), Configuration(), path, warn=lambda text: None)
    assert watch.look().new
    key = ("collector", "plan", "version", "metric", "window_start", "window_end", "revision")
    with Results(results.url) as database, database.engine.begin() as connection:
        newest = sql.select(*(WINDOWS.c[name] for name in key)).order_by(sql.desc("window_start"))
        row = dict(connection.execute(newest).mappings().first() or {})
        numbers = dict.fromkeys(("statistic", "expected", "threshold", "p_value"), 0.0)
        planted = {**row, "kind": "levels", "n": 1000, "message": "planted", **numbers}
        connection.execute(sql.insert(ALARMS), planted)
    kept = CollectorRegistry()
    kept.register(KeptAlerts([path]))
    shown = exposition(None, database=str(results.url))
    return shown + generate_latest(kept).decode()


@pytest.mark.slow
def test_every_query_has_data(job, tmp_path):
    """The data are what the exporters of three jobs expose, with growing counters."""
    needed("promtool")
    shown = {
        "one:1": exposition(job.state, job.log),
        "other:1": streaming(job.state, tmp_path),
        "alarmed:1": alarmed(tmp_path),
    }
    series = {
        f'{sample.name}{{instance="{instance}",job="sotto"'
        + "".join(f',{name}="{value}"' for name, value in sample.labels.items())
        + "}": f"{sample.value}+{int(family.type == 'counter')}x10"
        for instance, text in shown.items()
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if math.isfinite(sample.value)
    }
    series |= {f'up{{instance="{instance}",job="sotto"}}': "1x10" for instance in shown}
    wanted = {(f"count({query}) > bool 0", "10m"): 1 for query in queries().values()}
    check_with_promtool(tmp_path, [case_of(series, wanted)])
