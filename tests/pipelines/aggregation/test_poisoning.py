"""Alarms about reports that went through the real step: each about its attack, none about others.

The attacks are those of ``tests/pipelines/attacks.py``.
"""

from __future__ import annotations

import html
import json

import attacks
import pytest
from made_documents import projection, window_document

from pipelines.results.documents import WindowDocument, parse
from pipelines.results.reader import Chosen, ResultsReader
from pipelines.results.records import Alarm
from pipelines.results.tables import ALARMS
from pipelines.sinks.sql import Results
from pipelines.web import rendering
from pipelines.web.pages import METRIC
from pipelines.web.snapshot import ResultsSnapshot
from pipelines.web.views import MetricView
from sotto_cli import main

METRICS = [metric.name for metric in attacks.plan().metrics]
N = 20_000


@pytest.mark.slow
def test_silent_about_a_million_honest_reports():
    """48,000 devices, seven metrics, three levels each: in any order, and in large steps."""
    for number, name in enumerate(METRICS):
        assert attacks.alarms(name, 48_000, 0, attacks.honest, 700 + number) == [], name


@pytest.mark.parametrize("name", METRICS)
def test_lies_within_the_protocol_are_not_seen(name):
    """Nobody can tell: this is what ``--under`` is for."""
    assert attacks.alarms(name, 4_000, 0.3, attacks.lie, 11) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attack", "share", "kinds"),
    [
        ("theme", attacks.repeat, 0.08, {"levels"}),
        ("page", attacks.repeat, 0.002, {"levels"}),
        ("city", attacks.repeat, 0.08, {"levels"}),
        ("font", attacks.repeat, 0.06, {"levels"}),
        ("startup", attacks.repeat, 0.1, {"levels"}),
        ("host", attacks.repeat, 0.002, {"levels"}),
        ("theme", attacks.fresh, 0.12, {"levels"}),
        ("font", attacks.fresh, 0.1, {"levels"}),
        ("theme", attacks.promote, 0.1, {"levels"}),
        ("page", attacks.promote, 0.3, {"levels", "bits", "cells"}),
        ("city", attacks.promote, 0.1, {"levels"}),
        ("host", attacks.promote, 0.05, {"levels", "bits"}),
        ("city", attacks.choose_coins, 0.03, {"coins"}),
        ("startup", attacks.choose_coins, 0.05, {"coins"}),
        ("size", attacks.choose_coins, 0.1, {"coins"}),
        ("host", attacks.choose_coins, 0.05, {"coins"}),
        ("page", attacks.set_all_bits, 0.02, {"levels", "bits"}),
        ("host", attacks.set_all_bits, 0.02, {"levels", "bits"}),
    ],
)
def test_an_alarm_fires_about_its_attack(name, attack, share, kinds):
    assert set(attacks.alarms(name, N, share, attack, 5)) == kinds


@pytest.mark.parametrize("name", METRICS)
def test_what_one_more_forger_can_do_is_stated_and_rounded_outward(name):
    """As its mechanism has it, from the published value; not of quotients and quantiles."""
    _, rows = attacks.results(name, 3_000, 0, attacks.honest, 3)
    stated = {(row["kind"], row["item"]): row for row in rows if row["forged_up"] is not None}
    assert stated
    assert not {kind for kind, _ in stated} & {"quantile", "cdf", "bit"}
    assert (name == "startup") == (
        ("mean", "") in {(r["kind"], r["item"]) for r in rows} - {*stated}
    )
    mechanism = attacks.plan().metrics[METRICS.index(name)].mechanism
    for row in stated.values():
        if row["kind"] == "share":
            p, q = mechanism.support_pairs()[-1]
            ends = (row["value"] + q / (p - q), (1 - q) / (p - q) - row["value"])
            moves = [each / (row["n"] + 1) for each in ends]
            for said, least in zip((row["forged_down"], row["forged_up"]), moves, strict=True):
                assert least < said < least * 1.03


def test_a_withheld_window_states_nothing_of_forgers():
    window, rows = attacks.results("theme", 15, 0, attacks.honest, 3)
    assert window["withheld"]
    assert {(row["forged_down"], row["forged_up"]) for row in rows} == {(None, None)}


@pytest.mark.slow
def test_a_single_device_is_no_alarm_although_it_is_certain():
    assert attacks.alarms("host", N, 10 / N, attacks.repeat, 5) == []


def page(url, *, public):
    """Return the page of the metric of a database."""
    reader = ResultsReader(url)
    snapshot = ResultsSnapshot(reader, reader.revision())
    (key,) = snapshot.newest
    (shown,) = snapshot.windows(key)
    view = MetricView(snapshot, rendering.ServedLinks(), public, key=key, shown=shown)
    return rendering.served_page(rendering.make(METRIC, view), leave=False)


def test_alarms_are_where_estimates_are_and_go_when_they_are_no_longer_true(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'results.db'}"
    bad, estimates = attacks.results("page", 2_000, 0.2, attacks.repeat, 3)
    good, corrected = attacks.results("page", 2_000, 0, attacks.honest, 3)
    with Results(url) as database:
        database.projected("attacked.example", "mine")
        database.project(projection("attacked.example", "mine", 1, None, [([bad], estimates)]))
        [stored] = database.table(ALARMS)
    document = parse(*window_document("mine", bad, estimates, 1, "early"))
    assert isinstance(document, WindowDocument)
    [again] = document.rows()[Alarm]
    assert {name: again[name] for name in bad["alarms"][0]} == bad["alarms"][0]
    [alarm] = ResultsReader(url).alarms(Chosen(metric="page"))
    assert (alarm.kind, alarm.p_value, alarm.segment) == ("levels", stored["p_value"], "")
    assert alarm.p_value < 1e-9 < 0.1 < alarm.statistic

    said = html.escape(alarm.message)
    shown = page(url, public=False)
    assert said in shown
    assert "one forger −0." in shown
    assert said not in page(url, public=True)

    main(["estimates", "--database", url, "--under", "1%"])
    out = capsys.readouterr().out
    assert f"  warning: {alarm.message} (check of levels)" in out
    assert "1 % forged" in out
    main(["estimates", "--database", url, "--under", "0.01", "--format", "json"])
    shown = capsys.readouterr()
    assert alarm.message in shown.err
    for row in json.loads(shown.out):
        [(over, short)] = row["reach"][2:]
        assert row["under_low"] == pytest.approx(row["low"] - 0.01 * over)
        assert row["under_high"] == pytest.approx(row["high"] + 0.01 * short)
        assert 0 < row["forged_down"] < row["forged_up"] < 0.01

    with Results(url) as database:
        later = [({**good, "revision": 2},), corrected]
        database.project(projection("attacked.example", "mine", 2, None, [later]))
        assert database.table(ALARMS) == []
    main(["estimates", "--database", url])
    assert "warning" not in capsys.readouterr().out
