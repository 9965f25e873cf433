"""Counts out of published estimates."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.soak.decoded import UnexplainedError, windows_of
from benchmarks.soak.fleet import LEVELS, SYMBOLS, Fleet, plan_of
from pipelines.aggregation.counts import Window, WindowKey
from pipelines.aggregation.result_rows import rows_of_windows
from pipelines.sinks.documents import WindowDocument, parse, window_document
from sotto.plan.registry import Registry


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(plan_of(), 1_750_000_000_000, 1)


def published(fleet: Fleet, counted: np.ndarray) -> WindowDocument:
    key = WindowKey(fleet.plan.fingerprint, fleet.metrics[2].index, fleet.base)
    windows, estimates = rows_of_windows([(key, Window(1, counted))], Registry([fleet.plan]), {})
    document = parse(*window_document("job", windows[0], estimates, 1, "early"))
    assert isinstance(document, WindowDocument)
    return document


@pytest.mark.parametrize("reports", [1, 3, 40, 128])
def test_counts_come_back(fleet, reports):
    source = np.random.default_rng(reports)
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    counted[source.integers(LEVELS, size=reports), np.arange(reports)] = 1
    counted[0, 5] += 1
    counted[2, 6] += 1
    ((key, found),) = windows_of([published(fleet, counted)], fleet)
    assert (key.metric, key.start) == (fleet.metrics[2].index, fleet.base)
    assert (found == counted).all()


def test_what_no_counts_give_is_told(fleet):
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    counted[1, :4] = 1
    document = published(fleet, counted)
    document.estimates[3]["value"] += 0.01
    with pytest.raises(UnexplainedError):
        list(windows_of([document], fleet))


def test_a_window_whose_reports_were_taken_back_counts_nothing(fleet):
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    counted[1, 3] = 1
    whole = published(fleet, counted)
    empty = whole.model_copy(update={"window": {**whole.window, "n": 0}, "estimates": ()})
    ((_, found),) = windows_of([empty], fleet)
    assert not found.any()
