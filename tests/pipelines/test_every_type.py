"""Every type of metric and every mechanism, from the SDK through log and aggregate to estimates."""

from __future__ import annotations

from pathlib import Path

import pytest
from every_type import KINDS, every_plan, finite, fleet, logged
from statistical import check_normal

import sotto_cli
from mechanisms.registry import REGISTRY, mechanisms_for
from pipelines.bounded.run import aggregate
from pipelines.exporter.database import WatchedResults
from pipelines.results.reader import ResultsReader
from pipelines.results.tables import ESTIMATES
from pipelines.sinks.sql import Results, of_state
from sotto.plan.metric import TYPES

pytestmark = pytest.mark.slow

SEED = 271828
DEVICES = 700
CANDIDATES = {"rappor": ("home", "away")}


@pytest.fixture(scope="module")
def sent():
    return fleet(every_plan(), DEVICES, SEED)


@pytest.fixture(scope="module")
def state(sent, tmp_path_factory):
    folder, plan = tmp_path_factory.mktemp("every"), every_plan()
    state = Path(folder / "state")
    result = aggregate(
        logged(sent, folder), state, [plan], candidates={plan.fingerprint: CANDIDATES}
    )
    assert result.rejects == {}
    return state


@pytest.fixture(scope="module")
def rows(state):
    found: dict[str, dict[tuple[str, str], dict[str, object]]] = {}
    with Results(of_state(state)) as results:
        for row in results.table(ESTIMATES):
            key = str(row["kind"]), str(row["item"])
            found.setdefault(str(row["metric"]), {})[key] = row
    return found


@pytest.mark.parametrize("name", [name for name in KINDS if name != "permute_and_flip"])
def test_estimates_lie_within_sampling_error_of_the_truth(name, sent, rows):
    """With a false-failure rate of 1e-9 a metric; where the reports determine anything at all."""
    found = rows[name]
    compared = []
    for key, truth in KINDS[name].truth(sent.values[name]).items():
        row = found[key]
        if finite(row["standard_error"]):
            compared.append((row["value"], truth, row["standard_error"]))
    assert compared, f"nothing of {name} is determined"
    values, truths, errors = zip(*compared, strict=True)
    check_normal(values, truths, errors, label=f"{name}, seed {SEED}")


def test_reports_taken_for_another_rung_would_be_noticed(sent, rows):
    """The check itself: shares debiased as if all reports were of the first level."""
    mechanism = every_plan().metric("grr").mechanism
    [(p, q)], [(last_p, last_q)] = (mechanism.probabilities(level) for level in (0, 1))
    truths = KINDS["grr"].truth(sent.values["grr"])
    found = [rows["grr"][key] for key in truths]
    wrong = [(float(str(row["value"])) * (last_p - last_q) + last_q - q) / (p - q) for row in found]
    errors = [row["standard_error"] for row in found]
    with pytest.raises(AssertionError):
        check_normal(wrong, list(truths.values()), errors)


def test_an_estimate_that_is_known_to_be_biased_has_no_interval_and_is_marked(state, capsys):
    with ResultsReader.of_state(state) as reader:
        found = [row for row in reader.estimates() if row.value is not None]
    biased = {(row.metric, row.kind) for row in found if row.biased}
    assert {("permute_and_flip", "share"), ("brr", "share"), ("square_wave", "cdf")} <= biased
    brr = {"brr", "points"}
    assert {metric for metric, _ in biased} == {"permute_and_flip", "square_wave", *brr}
    for row in found:
        if row.biased:
            assert (row.low, row.high, row.standard_error, row.detection_floor) == (None,) * 4
    assert sotto_cli.main(["estimates", "--state", str(state)]) == 0
    printed = capsys.readouterr().out
    assert "biased (em)" in printed
    assert "biased (smoothed)" in printed
    exposed = WatchedResults(of_state(state), 1_000_000).read().popitem()[1].estimates
    ends = {row.metric: row.low for row in exposed if row.method == "biased"}
    assert set(ends.values()) == {None}


def test_every_type_and_mechanism_is_there():
    metrics = every_plan().metrics
    named = {metric.mechanism.name for metric in metrics}
    assert named == set(REGISTRY), "each has a line in KINDS of tests/pipelines/every_type.py"
    assert {metric.type for metric in metrics} == set(TYPES)
    assert {name for each in TYPES for name in mechanisms_for(each)} == set(REGISTRY)
