"""Alerts arrive once, at whoever is configured; or later, with a reason."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

from moving_results import PLAN, MovingResults, compiled
from receiver import NOW, Calling, calling, receiving

from pipelines.alerts.configuration import Configuration, MetricWatched
from pipelines.alerts.watch import AlertWatch
from pipelines.results.reader import ResultsReader
from sotto.plan.compile import parse_plan


def url(server):
    return f"http://localhost:{server.server_port}/hook"


class Clock:
    """Says what time it is to be."""

    now = NOW

    def __call__(self):
        return self.now


def test_what_is_not_delivered_is_tried_again_and_arrives_once(tmp_path):
    results = MovingResults(tmp_path)
    results.write({"red": [(0.2, 0.02)] * 19 + [(0.5, 0.02)] * 2})
    clock, warnings = Clock(), []
    with receiving(503, 500) as server:
        configuration = Configuration.model_validate({"notify": {"webhook": {"url": url(server)}}})
        path = tmp_path / "alerts.json"
        watch = AlertWatch(results.reader(), configuration, path, clock=clock, warn=warnings.append)
        assert watch.look().undelivered == 1
        # Too early to try again.
        assert watch.deliver() == 1
        assert len(server.requests) == 1
        clock.now += timedelta(seconds=10)
        assert watch.deliver() == 1
        clock.now += timedelta(seconds=20)
        assert watch.deliver() == 0
        clock.now += timedelta(days=1)
        # Another process that has the same file.
        assert (
            AlertWatch(results.reader(), configuration, path, clock=clock).look().undelivered == 0
        )
    ids = {each.headers["webhook-id"] for each in server.requests}
    bodies = {each.body for each in server.requests}
    assert (len(server.requests), len(ids), len(bodies)) == (3, 1, 1)
    assert warnings == [
        "an alert is not delivered: localhost answered 503",
        "an alert is not delivered: localhost answered 500",
    ]
    (delivery,) = watch.kept().alerts[0].deliveries.values()
    assert (delivery.attempts, delivery.problem) == (3, None)
    # A channel that is not configured any more has no pending alerts.
    kept = watch.kept()
    kept.alerts[0].deliveries["webhook"].next = NOW
    path.write_text(kept.model_dump_json())
    quiet = AlertWatch(results.reader(), Configuration(), path, clock=clock)
    assert quiet.deliver() == 0


def test_one_alert_that_is_refused_does_not_hold_up_the_others(tmp_path):
    results = MovingResults(tmp_path)
    items = ["blue", "green", "red"]
    results.write({item: [(0.2, 0.02)] * 14 for item in items})
    with receiving(400) as server:
        configuration = Configuration.model_validate({"notify": {"webhook": {"url": url(server)}}})
        path = tmp_path / "alerts.json"
        watch = AlertWatch(results.reader(), configuration, path, warn=lambda text: None)
        watch.look()
        # One after another, so that each is a message of its own.
        for number, item in enumerate(items):
            moved = {each: [(0.5 if each == item else 0.2, 0.02)] * 2 for each in items[number:]}
            results.write(moved, first=14 + 2 * number)
            assert watch.look().undelivered == 1
    posted = [json.loads(each.body)["data"]["item"] for each in server.requests]
    assert list(dict.fromkeys(posted)) == items


def test_a_metric_that_the_newest_version_of_its_plan_lacks_is_warned_of_once(tmp_path):
    results, warnings = MovingResults(tmp_path), []
    results.write({"red": [(0.2, 0.02)] * 9})
    renamed = PLAN.replace("version: 1", "version: 2").replace("colour", "hue")
    reader = ResultsReader(results.url, plans=[compiled(), parse_plan(renamed).compile()])
    named = Configuration(metrics=(MetricWatched(metric="colour"),))
    watch = AlertWatch(reader, named, tmp_path / "alerts.json", warn=warnings.append)
    watch.look()
    watch.look()
    assert warnings == ["alerts watch colour, which no newest version of a plan has"]


def test_a_notifier_that_breaks_its_contract_stops_no_other(tmp_path):
    results = MovingResults(tmp_path)
    results.write({"red": [(0.2, 0.02)] * 19 + [(0.5, 0.02)] * 2})
    sent, warnings = [], []

    def breaks(alert, now):
        raise ValueError("https://hooks.example/hidden")

    notifiers = {"broken": Calling(function=breaks), **calling(lambda alert, now: sent.append(1))}
    path = tmp_path / "alerts.json"
    watch = AlertWatch(
        results.reader(), Configuration(), path, notifiers, clock=Clock(), warn=warnings.append
    )
    assert watch.look().undelivered == 1
    assert len(sent) == 1
    assert warnings == ["an alert is not delivered: broken raised ValueError"]
    assert "hidden" not in path.read_text()


def test_a_watch_that_runs_sends_what_comes(tmp_path):
    results = MovingResults(tmp_path)
    watched = (MetricWatched(metric="colour", items=("red",)),)
    stopped, arrived, warnings = threading.Event(), threading.Event(), []

    def send(alert, now):
        assert alert.item == "red"
        arrived.set()

    watch = AlertWatch(
        results.reader(),
        Configuration(metrics=watched),
        tmp_path / "alerts.json",
        calling(send),
        warn=warnings.append,
    )
    thread = threading.Thread(target=watch.run, args=(stopped, 0.02))
    thread.start()
    try:
        # There are no results yet, which is said once and not the end.
        results.write({"red": [(0.2, 0.02)] * 20})
        results.write({"red": [(0.5, 0.02)] * 2}, first=20)
        assert arrived.wait(600)
    finally:
        stopped.set()
        thread.join()
    assert len(warnings) == len(set(warnings))
    assert len(watch.last.kept) == 1
