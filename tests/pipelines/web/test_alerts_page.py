"""The page about alerts: what moved, with its chart, and what is watched."""

from __future__ import annotations

import json

import pytest
from html_pages import Html
from invented_results import ask
from moving_results import MovingResults, compiled
from receiver import calling, receiving
from serving import sotto, wait_until

from pipelines.alerts.configuration import Configuration
from pipelines.alerts.notifiers.base import NotificationError
from pipelines.alerts.watch import AlertWatch
from pipelines.web.access import LOOPBACK, Access
from pipelines.web.application import Site, application

NASTY = "<i>red</i>"


def refuses(alert, now):
    raise NotificationError("it answered <b>500</b>")


@pytest.fixture
def results(tmp_path):
    found = MovingResults(tmp_path)
    found.write({NASTY: [(0.2, 0.02)] * 19 + [(0.5, 0.02)] * 2, "blue": [(0.7, 0.02)] * 21})
    return found


def app_of(results, *, public=False, watched=True):
    watch = AlertWatch(
        results.reader(),
        Configuration(),
        results.folder / "alerts.json",
        calling(refuses),
        warn=lambda text: None,
    )
    site = Site(results.reader(), Access(None, public, LOOPBACK), None, watch if watched else None)
    return application(site), watch


def test_what_moved_is_shown_with_its_chart(results):
    app, watch = app_of(results)
    assert "have not been looked at yet" in ask(app, "/alerts").text
    watch.look()
    text = ask(app, "/alerts").text
    shown = Html(text)
    assert f"colour {NASTY} rose by 30 points" in shown.text
    assert "From 20 %, since" in shown.text
    # Messages link to it.
    assert f'<article class="moved" id="{watch.kept().alerts[0].id}">' in text
    assert "nine of ten shifts of this size are found within 2" in shown.text
    assert "webhook: not delivered yet (it answered <b>500</b>)" in shown.text
    assert "line: local level, drift" in shown.text
    assert text.count('role="img"') == 1
    assert "2 figures are watched" in shown.text
    assert NASTY not in text
    assert "<b>500" not in text
    assert shown.values("style", "onclick") == []
    # The level after the shift is not known yet.
    rows = [line for line in shown.text.splitlines() if line.startswith(f"colour {NASTY}")]
    assert "not judged yet" in rows[-1]
    # The page says that the results take an alert back.
    results.write({NASTY: [(0.2, 0.02)], "blue": [(0.7, 0.02)]}, first=20)
    watch.look()
    again = Html(ask(app, "/alerts").text)
    assert "By the results as they are now, it would not be an alert." in again.text


def test_without_enough_windows_no_figure_is_said_to_have_stayed(results):
    results.write({NASTY: [(0.2, 0.02)] * 5, "blue": [(0.7, 0.02)] * 5})
    app, watch = app_of(results)
    watch.look()
    text = Html(ask(app, "/alerts").text).text
    assert "No figure can be judged yet. The first 8 windows" in text
    assert "No figure has moved" not in text


def test_it_is_linked_only_where_somebody_looks_and_never_public(results):
    assert "/alerts" in Html(ask(app_of(results)[0], "/").text).values("href")
    unwatched, _ = app_of(results, watched=False)
    assert "/alerts" not in Html(ask(unwatched, "/").text).values("href")
    shown = Html(ask(unwatched, "/alerts").text).text
    assert "No figure is watched: start sotto serve with --alerts" in shown
    public, watch = app_of(results, public=True)
    watch.look()
    assert ask(public, "/alerts").status == 404
    assert "/alerts" not in Html(ask(public, "/").text).values("href")


@pytest.mark.real_randomness
@pytest.mark.slow
def test_sotto_serve_sends_what_it_finds_and_ends_when_it_is_told(results, tmp_path):
    (tmp_path / "plan.json").write_bytes(compiled().to_json())
    given = ["--plan", tmp_path / "plan.json", "--database", results.url]
    given += ["--alerts", tmp_path / "alerts.yaml", "--kept", tmp_path / "alerts.json"]
    with receiving() as server:
        notified = f'notify: {{webhook: {{url: "{server.url}/hook"}}}}'
        (tmp_path / "alerts.yaml").write_text(notified)
        with sotto("serve", "--port", "0", *given):
            wait_until(lambda: server.requests)
    found = [json.loads(each.body) for each in server.requests]
    assert [each["data"]["item"] for each in found] == [NASTY]
    assert found[0]["text"].startswith(f"colour {NASTY} rose from 20 % by 30 points")
