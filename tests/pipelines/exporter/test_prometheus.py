"""A real Prometheus takes what the exporter serves; rules and dashboard ask for what there is."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server
from report_logs import Sent
from step_plans import plans
from watched import (
    CANDIDATES,
    FakeDocuments,
    FakeStream,
    Watched,
    append,
    exposition,
    late_messages,
    sunk,
    watched,
)

from pipelines.bounded.run import aggregate
from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.database import Database
from pipelines.exporter.health import Health, Readers
from sotto.log.writer import now_ms
from sotto.plan.registry import Registry

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
VARIABLES = {"$instance": ".*", "$plan": ".*", "$metric": ".*", "$kind": ".*"}

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="no prometheus and promtool on the path: apt-get install prometheus",
)


def alerts() -> dict[str, str]:
    """Return the expression of every alert."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
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


def test_every_alert_is_explained():
    text = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(Sotto\w+)`", text)) == set(alerts())


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


@needs_prometheus
def test_the_exposition_keeps_to_the_conventions(job):
    result = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition(job.state, job.log),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


#: For every alert, series that make it fire; twice the longest delay goes by.
FAULTS = {
    "SottoExporterDown": {'up{job="sotto"}': "0x200"},
    "SottoSourceBroken": {'sotto_source_status{source="state",status="damaged"}': "1x200"},
    "SottoReadingSlow": {"sotto_exporter_read_age_seconds": "500x200"},
    "SottoReadingSlow, and none": {'up{job="sotto"}': "1x200"},
    "SottoNotLooking": {"sotto_run_check_age_seconds": "901x200"},
    "SottoNoRun": {"sotto_run_age_seconds": "1801x200", "sotto_lag_partitions": "1x200"},
    "SottoLag": {"sotto_lag_seconds": "3601x200"},
    "SottoNoDocument": {"sotto_document_age_seconds": "901x200", "sotto_lag_partitions": "1x200"},
    "SottoNoProgress": {
        'sotto_partition_offset{partition="reports-e1-p2/0"}': "12x200",
        'sotto_partition_lag_records{partition="reports-e1-p2/0"}': "7x200",
        # Beside it one that is read.
        'sotto_partition_offset{partition="reports-e1-p2/1"}': "12+5x200",
        'sotto_partition_lag_records{partition="reports-e1-p2/1"}': "7x200",
    },
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
    "SottoBudgetExceeded": {'sotto_period_spent_max_ratio{audit="accepted"}': "1.01x200"},
    "SottoEstimatesStale": {
        "sotto_clock_timestamp_seconds": "3100x200",
        'sotto_estimate_window_start_timestamp_seconds{plan="p",metric="m",version="1"}': "0x200",
        'sotto_estimate_window_end_timestamp_seconds{plan="p",metric="m",version="1"}': "1000x200",
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
    "sotto_run_age_seconds": "90000x200",
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
    "sotto_sink_lag_records": "0 5 0 9 7 0 3x40 0x150",
    "sotto_database_behind_generations": "0x200",
    'sotto_reports_rejected_total{reason="late"}': "0+4x200",
    'sotto_reports_rejected_total{reason="unknown_plan"}': "7x200",
    'sotto_reports_rejected_total{reason="corrupt_log"}': "7x200",
    "sotto_reports_read_total": "0+100x200",
    'sotto_period_revoked_pseudonyms{period="a",reason="over_budget"}': "1x200",
    'sotto_period_pseudonyms{period="a"}': "1000x200",
    'sotto_period_spent_max_ratio{audit="accepted"}': "1x200",
    'sotto_period_spent_max_ratio{audit="observed"}': "3x200",
    "sotto_clock_timestamp_seconds": "2900x200",
    'sotto_estimate_window_start_timestamp_seconds{plan="p",metric="m",version="1"}': "-5000x200",
    'sotto_estimate_window_end_timestamp_seconds{plan="p",metric="m",version="1"}': "-4000x200",
    'sotto_estimate_window_start_timestamp_seconds{plan="p",metric="m",version="2"}': "0x200",
    'sotto_estimate_window_end_timestamp_seconds{plan="p",metric="m",version="2"}': "1000x200",
    'sotto_metric_first_release_seconds{plan="p",metric="m",version="2"}': "1000x200",
}


@needs_prometheus
@pytest.mark.slow
def test_every_alert_fires_when_it_should_and_no_other_time(tmp_path):
    """The expression with its delay: a fault each, and a job with which all is well."""
    named = [(name.partition(",")[0], series) for name, series in FAULTS.items()]
    assert {name for name, _ in named} == set(alerts())
    cases = [_case(series, {name: 1}) for name, series in named]
    cases.append(_case(WELL, dict.fromkeys(alerts(), 0)))
    shutil.copy(RULES, tmp_path / "alerts.yml")
    document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    result = subprocess.run(
        ["promtool", "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def _case(series: dict[str, str], firing: dict[str, int]) -> dict[str, object]:
    """Return a case of promtool's: how many alerts of some names fire after three hours."""
    queries = {
        f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)': number
        for name, number in firing.items()
    }
    return {
        "interval": "1m",
        "input_series": [{"series": s, "values": values} for s, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "3h", "exp_samples": [{"labels": "{}", "value": number}]}
            for query, number in queries.items()
        ],
    }


class Running(NamedTuple):
    """A Prometheus that scrapes an exporter of a job, and another one of a streaming job."""

    job: Watched
    url: str
    other: str

    def get(self, path: str, **parameters: str) -> Any:
        """Return what the API answers."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]


def until(done: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something is so."""
    limit = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def streaming(state: Path, folder: Path) -> Iterator[str]:
    """Serve what a streaming job with the same results has to say; return the address."""
    url = f"sqlite:///{folder / 'sunk.db'}"
    documents = FakeDocuments(sunk(state, url) + 3, now_ms())
    registry = CollectorRegistry()
    readers = Readers(None, Database(url, 2000), FakeStream(), documents, Registry(plans()))
    registry.register(Health(readers.readings, 0.2, 5))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def _configured(folder: Path, *targets: str) -> Path:
    """Write the deployment's configuration, for targets on loopback and a hurried scrape."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (scrape,) = config["scrape_configs"]
    scrape["static_configs"] = [{"targets": list(targets)}]
    hurried = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["global"] = hurried
    shutil.copy(RULES, folder / "alerts.yml")
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@pytest.fixture
def running(job, tmp_path):
    served = [sys.executable, "-m", "sotto.cli", "exporter", "--port", "0", "--max-age", "200ms"]
    served += ["--state", str(job.state), "--log", str(job.log)]
    address = f"127.0.0.1:{_free_port()}"
    with (
        streaming(job.state, tmp_path) as other,
        subprocess.Popen(served, stdout=subprocess.PIPE, text=True) as exporter,
    ):
        assert exporter.stdout is not None
        target = exporter.stdout.readline().strip().removeprefix("http://").removesuffix("/metrics")
        options = {
            "config.file": _configured(tmp_path, target, other),
            "storage.tsdb.path": tmp_path / "data",
            "web.listen-address": address,
            "log.level": "warn",
        }
        command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
        with subprocess.Popen(command) as prometheus:
            yield Running(job, f"http://{address}", other)
            prometheus.terminate()
            prometheus.wait(20)
        exporter.terminate()
        exporter.wait(20)


@needs_prometheus
@pytest.mark.slow
def test_prometheus_scrapes_it_and_every_query_has_data(running):
    def answers() -> bool:
        try:
            return bool(running.get("query", query="sotto_run_generation == 1")["result"])
        except OSError:
            return False

    until(answers)
    until(lambda: _well(running) == 2)
    (same,) = running.get("query", query="count(count by (item) (sotto_estimate))")["result"]
    either = 'count(sotto_estimate{instance="%s"})'
    (streamed,) = running.get("query", query=either % running.other)["result"]
    assert int(streamed["value"][1]) >= int(same["value"][1]) > 10
    append(running.job.log, "lane-0", [*late_messages(5), Sent(0, b"no report")])
    aggregate(running.job.log, running.job.state, plans(), candidates=CANDIDATES)
    rate = 'rate(sotto_reports_rejected_total{reason="malformed"}[1m]) > 0'
    until(lambda: running.get("query", query=rate)["result"])
    for title, query in queries().items():
        assert running.get("query", query=query)["result"], title
    until(lambda: all(rule["health"] == "ok" for rule in _rules(running)))
    assert {rule["name"] for rule in _rules(running)} == set(alerts())
    for name, expression in alerts().items():
        running.get("query", query=expression)
        assert not [r for r in _rules(running) if r["name"] == name and r.get("lastError")]


def _well(running: Running) -> int:
    """Return how many targets are up, when no scrape has failed."""
    targets = running.get("targets")["activeTargets"]
    assert not any(target["lastError"] for target in targets)
    return sum(target["health"] == "up" for target in targets)


def _rules(running: Running) -> list[dict[str, Any]]:
    return [rule for group in running.get("rules")["groups"] for rule in group["rules"]]
