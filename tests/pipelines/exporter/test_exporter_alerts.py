"""Alerts that are kept are exposed; a file that is damaged, or not there, is noticed."""

from __future__ import annotations

import pytest
from moving_results import MovingResults
from prometheus_client import CollectorRegistry, generate_latest
from receiver import calling
from watched import samples, value

from pipelines.alerts.configuration import Configuration
from pipelines.alerts.notifiers.base import NotificationError
from pipelines.alerts.watch import AlertWatch
from pipelines.exporter.alerts import AGE, KeptAlerts


def refuses(alert, now):
    raise NotificationError("not now")


def exposed(*paths):
    registry = CollectorRegistry()
    registry.register(KeptAlerts(paths))
    return samples(generate_latest(registry).decode())


def test_alerts_are_exposed(tmp_path):
    results = MovingResults(tmp_path)
    jump = [(0.2, 0.02)] * 19 + [(0.5, 0.02)] * 2
    results.write({"red": jump, "blue": [(0.7, 0.02)] * 21})
    path = tmp_path / "alerts.json"
    watch = AlertWatch(
        results.reader(), Configuration(), path, calling(refuses), warn=lambda text: None
    )
    (alert,) = watch.look().new
    found = exposed(path)
    labels = {"collector": "tests.example", "plan": "moving", "metric": "colour", "segment": ""}
    labels |= {"kind": "share", "item": "red", "direction": "up"}
    file = {"collector": "tests.example", "file": str(path)}
    assert value(found, "sotto_estimate_moved", **labels) == alert.change
    raised = value(found, "sotto_estimate_moved_timestamp_seconds", **labels)
    assert raised == pytest.approx(alert.raised.timestamp())
    assert value(found, "sotto_alerts_evaluated_timestamp_seconds", **file) >= raised
    assert value(found, "sotto_alerts_undelivered", **file) == 1
    # The newest of two alerts about one figure; none that is old, or that the results take back.
    kept = watch.kept()
    kept.alerts.append(alert.model_copy(update={"id": "later", "change": 0.4}))
    path.write_text(kept.model_dump_json())
    assert value(exposed(path), "sotto_estimate_moved", **labels) == 0.4
    for each, change in zip(
        kept.alerts, ({"standing": False}, {"raised": alert.raised - AGE}), strict=True
    ):
        for name, new in change.items():
            setattr(each, name, new)
    path.write_text(kept.model_dump_json())
    assert "sotto_estimate_moved" not in exposed(path)


def test_a_file_that_cannot_be_read_was_never_evaluated(tmp_path):
    damaged, missing = tmp_path / "damaged", tmp_path / "missing"
    damaged.write_text("{")
    evaluated = exposed(damaged, missing)["sotto_alerts_evaluated_timestamp_seconds"]
    assert list(evaluated.values()) == [0, 0]
