"""The documents of a topic of estimates: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_documents import health_document, period_document, rejects_document, window_document
from sink_documents import period_row
from test_estimates import CANDIDATES, PLAN, REGISTRY, counts_of

from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import rows_of_windows
from pipelines.results import records
from pipelines.results.documents import (
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
    parse,
)
from pipelines.results.tables import ESTIMATES, PERIODS, WINDOWS
from sotto.errors import FormatError


def rows(name: str, devices: int = 50):
    metric = next(metric for metric in PLAN.metrics if metric.name == name)
    window = WindowCounts(3, counts_of(metric, devices))
    key = WindowKey(PLAN.fingerprint, PLAN.metrics.index(metric), 0)
    strings = {PLAN.fingerprint: {name: CANDIDATES}}
    (row,), estimates = rows_of_windows([(key, window)], REGISTRY, strings)
    return row, estimates


def colour(most: int | None = None, devices: int = 50) -> tuple[bytes, bytes]:
    """Return the document of a window of colours, with some of its estimates."""
    row, estimates = rows("colour", devices)
    return window_document("job", row, estimates[:most], 7, "late")


@pytest.mark.parametrize("name", [metric.name for metric in PLAN.metrics])
def test_rows_come_out_as_a_database_would_store_them(name):
    row, estimates = rows(name)
    document = parse(*window_document("job", row, estimates, 7, "early"))
    assert isinstance(document, WindowDocument)
    assert (document.job, document.revision, document.pane) == ("job", 7, "early")
    found_all = document.rows()
    (window,), found_rows, alarms = (
        found_all[each] for each in (records.Window, records.EstimateRecord, records.Alarm)
    )
    assert {**window, "alarms": alarms} == {**row, "revision": 7}
    assert set(window) == set(WINDOWS.columns.keys())
    for found, given_row in zip(found_rows, estimates, strict=True):
        assert set(found) == set(ESTIMATES.columns.keys())
        stored = {
            column: None if isinstance(value, float) and not math.isfinite(value) else value
            for column, value in given_row.items()
        }
        assert found == stored | {"revision": 7}


def test_values_are_canonical():
    row, estimates = rows("colour")
    key, value = window_document("job", row, estimates, 7, "late")
    assert key == b'["window","tests.example","steps",1,"colour",0]'.replace(
        b"steps", str(row["plan"]).encode()
    )
    shuffled = [dict(reversed(each.items())) for each in estimates]
    assert window_document("job", dict(reversed(row.items())), shuffled, 7, "late") == (key, value)
    assert value == json.dumps(json.loads(value), sort_keys=True, separators=(",", ":")).encode()
    assert value.isascii()


def test_periods_rejects_and_health():
    period = parse(*period_document("job", period_row(3), 2))
    assert isinstance(period, PeriodDocument)
    assert period.period == period_row(3)
    assert set(period_row(3)) == set(PERIODS.columns.keys())
    rejects = parse(*rejects_document("job", "c", {"late": 2, "malformed": 1}, 2))
    assert isinstance(rejects, RejectsDocument)
    assert (rejects.collector, rejects.rejects) == ("c", {"late": 2, "malformed": 1})
    assert rejects.requeued is None
    known = rejects_document("job", "c", {"unknown_plan": 2}, 2, {"unknown_plan": 1})
    assert parse(*known).requeued == {"unknown_plan": 1}  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match=r"rejects\.requeued: greater_than_equal"):
        rejects_document("job", "c", {"unknown_plan": 2}, 2, {"unknown_plan": -1})
    said = {"reports": 9, "clock": -4, "offsets": {"reports-e1-p1@id/0": 12}}
    health = parse(*health_document("job", "c", said, 2))
    assert isinstance(health, HealthDocument)
    assert {name: value for name, value in health.health.items() if value is not None} == said
    key, value = health_document("job", "c", said, 2)
    # Release 0.4.0 wrote none.
    assert parse(key, value.replace(b'"future":null,', b"")).health.keys() < health.health.keys()  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match="'pseudonym'"):
        health_document("job", "c", {"pseudonym": "x"}, 2)


def test_what_is_no_document_is_refused():
    key, value = colour()
    wrong: dict[str, list[object]] = {
        "schema": [2, True],
        "kind": ["other", ["window"]],
        "job": [""],
        "revision": [0, 1.0, True, 2**63],
        "pane": ["soon", []],
        "more": [1],
        "window": [None, {}],
        "estimates": [{}, [None], [{}]],
    }
    for name, others in wrong.items():
        for other in others:
            with pytest.raises(FormatError):
                parse(key, json.dumps({**json.loads(value), name: other}).encode())


def test_a_value_that_no_database_takes_is_refused():
    key, value = colour(most=1)
    (estimate,) = json.loads(value)["estimates"]
    wrong = {
        "value": ["NaN", "Infinity", "1e999", "9" * 400, '"1"', "true"],
        "item": [r'"\u0000"', r'"\ud800"', "1"],
        "n": ["-1", "9223372036854775808"],
        "confounded_with": ['"x"'],
        "position": ["2147483648"],
    }
    for name, others in wrong.items():
        before = f'"{name}":{json.dumps(estimate[name])}'.encode()
        assert before in value
        for other in others:
            with pytest.raises(FormatError):
                parse(key, value.replace(before, f'"{name}":{other}'.encode()))


def test_the_key_must_be_the_documents():
    row, estimates = rows("colour")
    key, value = window_document("job", row, estimates, 7, "late")
    other, _ = window_document("job", {**row, "metric": "shape"}, estimates, 7, "late")
    for wrong in (other, b"", None, key + b" "):
        with pytest.raises(FormatError, match="key"):
            parse(wrong, value)


def test_two_estimates_of_the_same_are_refused():
    row, estimates = rows("colour")
    with pytest.raises(FormatError, match="same"):
        window_document("job", row, [estimates[0], estimates[0]], 7, "late")


@given(st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=40).map(str.encode)))
def test_nothing_but_a_format_error_comes_of_bytes(value):
    with pytest.raises(FormatError):
        parse(b"", value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each),
    max_leaves=5,
)


@given(st.data())
def test_nothing_but_a_format_error_comes_of_a_changed_field(data):
    key, value = colour(most=1, devices=10)
    said = json.loads(value)
    place = data.draw(st.sampled_from([said, said["window"], said["estimates"][0]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(_JSON)
    with contextlib.suppress(FormatError):
        parse(key, json.dumps(said).encode())


@pytest.mark.real_randomness
def test_what_publishes_and_watches_needs_no_engine():
    code = """if True:
        import importlib, sys
        for name in ("results.documents", "sinks.quarantine", "exporter.health"):
            importlib.import_module(f"pipelines.{name}")
            print(*sorted({"apache_beam", "sqlalchemy", "numpy", "kafka"} & sys.modules.keys()))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["", "numpy", "numpy sqlalchemy"]
