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
from watched import exposition, streaming

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


#: Series for every alert that make it fire, and series where all is well.
SERIES = yaml.safe_load(Path(__file__).with_name("series.yml").read_text("utf-8"))


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

    named = [(name.partition(",")[0], series) for name, series in SERIES["faults"].items()]
    assert {name for name, _ in named} == set(alerts())
    cases = [case(series, {name: 1}) for name, series in named]
    check_with_promtool(tmp_path, [*cases, case(SERIES["well"], dict.fromkeys(alerts(), 0))])


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
