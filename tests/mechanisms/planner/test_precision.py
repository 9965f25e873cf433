"""Predicted standard errors and floors against repeated simulation by the real estimators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replicas import replicate
from scipy import stats
from statistical import check_at_least, check_normal, check_variance

from mechanisms.errors import ParameterError
from mechanisms.planner.precision import precision
from mechanisms.planner.targets import Assumed
from mechanisms.registry import build
from mechanisms.string.decoding import string_variances
from papers.float_numbers import threshold_variance

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SEED = 20261125
LADDER = [500_000, 1_000_000, 2_000_000]
N, REPEATS = 2000, 100
CATEGORY = [
    {"name": "grr", "domain_size": 6},
    {"name": "oue", "domain_size": 6},
    {"name": "local_hashing", "domain_size": 6, "buckets": 3},
    {"name": "subset", "domain_size": 6, "subset_size": 2},
    {"name": "hadamard", "domain_size": 6, "blocks": 1},
    {"name": "hadamard", "domain_size": 6, "blocks": 2},
]


def label(spec: Any, level: int) -> str:
    return f"{spec} rung {level}, seed {SEED}"


@pytest.mark.real_randomness
def test_what_needs_no_arrays_is_said_without_numpy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
from mechanisms.errors import ParameterError
from mechanisms.planner.targets import Assumed
from mechanisms.registry import build
top = build({"name": "top_response", "domain_size": 6, "clip": 3}, [1_000_000], "m")
print(top.precision(0, Assumed(share=0.1), 1.0).standard_error(1))
strings = build({"name": "rappor", "bits": 8, "hashes": 1, "cohorts": 2}, [1_000_000], "m")
try:
    strings.precision(0, Assumed(), 1.0)
except ParameterError:
    print("candidates")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    error, asked = done.stdout.split()
    top = build({"name": "top_response", "domain_size": 6, "clip": 3}, [1_000_000], "m")
    here = top.precision(0, Assumed(share=0.1), 1.0).standard_error(1)
    assert (float(error), asked) == (here, "candidates")
    grr = build({"name": "grr", "domain_size": 6}, [1_000_000], "m")
    # every draw: two formulas, of which nothing is drawn.
    assert here == pytest.approx(grr.precision(0, Assumed(share=0.1), 1.0).standard_error(1))


@pytest.mark.parametrize("spec", CATEGORY, ids=lambda spec: spec["name"])
def test_no_other_categories_are_worse_than_the_worst(spec: Any) -> None:
    mechanism = build(spec, LADDER, "m")
    unit = precision(mechanism, 1, Assumed(share=0.25)).standard_error(1) ** 2
    every = []
    for other in range(1, 6):
        shares = np.zeros(6)
        shares[0], shares[other] = 0.25, 0.75
        every.append(mechanism.variances(1, shares)[0])
    assert max(every) == pytest.approx(unit)


def test_a_domain_of_a_million_is_predicted() -> None:
    mechanism = build({"name": "hadamard", "domain_size": 2**20, "blocks": 4}, LADDER, "m")
    assert 0 < precision(mechanism, 2).standard_error(N) < 1


def test_a_wrong_prediction_is_seen() -> None:
    """The check itself: with the error of the next rung it fails."""
    mechanism = build(CATEGORY[0], LADDER, "m")
    symbols = np.where(np.arange(N) < N // 4, 0, 1)
    counts = replicate(mechanism, symbols, 1, REPEATS, SEED)
    found = [mechanism.frequencies(table)[0].value for table in counts]
    wrong = precision(mechanism, 2, Assumed(share=0.25)).standard_error(N)
    with pytest.raises(AssertionError):
        check_variance(found, wrong**2)


@pytest.mark.parametrize("spec", CATEGORY, ids=lambda spec: spec["name"])
def test_without_a_share_the_worst_one_is_taken(spec: Any) -> None:
    mechanism = build(spec, LADDER, "m")
    worst = precision(mechanism, 1)
    each = [precision(mechanism, 1, Assumed(share=k / 10)).standard_error(N) for k in range(11)]
    assert worst.standard_error(N) == pytest.approx(max(each), rel=1e-12)
    assert worst.ends == mechanism.extremes(1)


@pytest.mark.parametrize("spec", [CATEGORY[0], CATEGORY[1]], ids=lambda spec: spec["name"])
def test_a_share_at_the_floor_is_noticed(spec: Any) -> None:
    """Four times in five, and one that nobody has once in forty; normal to within 0.01."""
    mechanism = build(spec, LADDER, "m")
    told = precision(mechanism, 2)
    floor, times = told.floor(N), 300
    holders = round(floor * N)
    threshold = stats.norm.isf(0.025) * precision(mechanism, 2, Assumed(share=0.0)).standard_error(
        N
    )
    noticed = [0, 0]
    for case, number in enumerate((holders, 0)):
        symbols = np.where(np.arange(N) < number, 0, 1)
        for table in replicate(mechanism, symbols, 2, times, SEED):
            noticed[case] += mechanism.frequencies(table)[0].value > threshold
    check_at_least(noticed[0], times, 0.79, label=label(spec, 2))
    check_at_least(times - noticed[1], times, 0.965, label=label(spec, 2))


def test_a_number_in_its_unit() -> None:
    spec = {"name": "threshold", "missing": False}
    mechanism = build(spec, LADDER, "m")
    values = np.random.default_rng(SEED).beta(2, 5, N)
    told, n = precision(mechanism, 1, Assumed(values=tuple(values.tolist())), scale=200.0), 10**9
    stated = threshold_variance(*mechanism.probabilities(1)[0], values, strata=64) / n
    assert told.standard_error(n) == pytest.approx(200 * stated**0.5, rel=0.005)
    assert precision(mechanism, 1, scale=200.0).standard_error(n) >= told.standard_error(n)


@pytest.mark.parametrize("name", ["warner", "simmons", "christofides"])
def test_a_survey(name: str) -> None:
    extra: dict[str, Any] = {
        "warner": {},
        "simmons": {"unrelated": 30},
        "christofides": {"cards": (3, 2, 8)},
    }[name]
    mechanism = build({"name": name, **extra}, [500_000, 1_000_000], "m")
    part = mechanism.contributions[1]  # type: ignore[attr-defined]
    told = precision(mechanism, 1, Assumed(share=0.2))
    assert told.variance(N) == pytest.approx(0.8 * part.no + 0.2 * part.yes)


@pytest.mark.parametrize(("size", "missing"), [(1, False), (3, False), (3, True)])
def test_an_ordinal_mean(size: int, missing: bool) -> None:
    spec = {"name": "brr", "domain_size": 6 + missing, "subset_size": size, "missing": missing}
    mechanism: Any = build(spec, LADDER, "m")
    symbols = np.random.default_rng(SEED).binomial(5, 0.3, N)
    found = np.array(
        [
            [bound.value for bound in mechanism.estimates(table, np.arange(6) / 5).mean_bounds]
            for table in replicate(mechanism, symbols, 2, REPEATS, SEED)
        ]
    )
    stated = precision(mechanism, 2, Assumed(values=(*(symbols / 5).tolist(),))).variance(N) / N
    # A quotient varies by terms of the order of 1/n more than its leading order does.
    check_variance(
        found[:, int(found.var(axis=0).argmax())],
        stated * (1.02 if missing else 1),
        label=label(spec, 2),
    )
    assert precision(mechanism, 2).variance(N) / N >= stated


def test_candidate_strings() -> None:
    """Shares, errors and floors of candidates as the decoder finds and states them."""
    spec = {"name": "rappor", "bits": 64, "hashes": 2, "cohorts": 8}
    mechanism = build(spec, [2_000_000, 6_000_000], "s")
    names = [f"candidate {i}" for i in range(6)]
    shares = [0.5, 0.2, 0.1, 0.1, 0.1, 0.0]
    symbols = [
        name.encode() for name, s in zip(names, shares, strict=True) for _ in range(int(s * N))
    ]
    found, floors = [], []
    for table in replicate(mechanism, symbols, 1, REPEATS, SEED):
        decoded = mechanism.decode(table, names)
        found.append([each.estimate.value for each in decoded.items] + [decoded.unexplained.value])
        floors.append([each.estimate.detection_floor for each in decoded.items])
    pair = mechanism.probabilities(1)[0]
    stated = np.array(string_variances(mechanism.filters, pair, names, shares)) / N
    values = np.array(found)
    check_normal(
        values.mean(axis=0), [*shares, 0.0], (stated / REPEATS) ** 0.5, label=label(spec, 1)
    )
    for column in range(values.shape[1]):
        check_variance(values[:, column], stated[column], label=label(spec, 1))
    told = precision(mechanism, 1, Assumed(candidates=tuple(names)))
    assert told.floor(N) == pytest.approx(np.array(floors).mean(axis=0).max(), rel=0.1)


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "sampled_vector", "dimensions": 4, "sampled": 1, "bits": 0},
        {"name": "sampled_vector", "dimensions": 4, "sampled": 2, "bits": 6},
        {"name": "sampled_hybrid", "dimensions": 4, "sampled": 1, "points": 17},
    ],
    ids=["thresholds", "bits", "grid"],
)
def test_a_coordinate(spec: Any) -> None:
    mechanism = build(spec, LADDER, "v")
    generator = np.random.default_rng(SEED)
    vectors = np.column_stack(
        [generator.beta(a, 3, N) for a in (0.5, 2, 9)] + [generator.integers(0, 2, N)]
    )
    found = np.array(
        [
            [each.value for each in mechanism.means(table)]  # type: ignore[arg-type]
            for table in replicate(mechanism, list(vectors), 2, REPEATS, SEED)
        ]
    )
    for column in range(4):
        stated = mechanism.variance(2, vectors[:, column], N) / N  # type: ignore[arg-type]
        check_variance(found[:, column], stated, label=f"{label(spec, 2)}, {column}")


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "sampled_vector", "dimensions": 8, "sampled": 2, "bits": 0},
        {"name": "sampled_hybrid", "dimensions": 8, "sampled": 2, "points": 17},
    ],
    ids=["thresholds", "grid"],
)
def test_no_coordinate_is_worse_than_the_worst(spec: Any) -> None:
    generator = np.random.default_rng(SEED)
    for epsilon in (500_000, 4_000_000, 12_000_000):
        mechanism: Any = build(spec, [epsilon], "v")
        pictures = [generator.beta(a, b, 500) for a in (0.2, 1, 5) for b in (0.2, 1, 5)]
        pictures += [np.full(1, x) for x in (0.0, 0.3, 0.53, 1.0)] + [np.array([0.0, 1.0])]
        found = [mechanism.variance(0, each, 10**6) for each in pictures]
        worst = mechanism.variance(0, None, 10**6)
        assert 0.9 * worst <= max(found) <= 1.003 * worst


@pytest.mark.parametrize("epsilon", [2, 8])
@pytest.mark.parametrize(
    "spec",
    [
        {"name": "threshold"},
        {"name": "sampled_bit", "bits": 10},
        {"name": "sampled_bits", "bits": 10, "count": 2},
        {"name": "split_bits", "bits": 8},
        {"name": "duchi"},
        {"name": "hybrid", "points": 65},
        {"name": "piecewise", "points": 65},
    ],
    ids=lambda spec: spec["name"],
)
def test_intervals_of_uniform_numbers_are_as_long_as_predicted(spec: Any, epsilon: int) -> None:
    """Few mechanisms show how far numbers are spread, which the others' intervals must allow."""
    mechanism: Any = build({**spec, "missing": False}, [epsilon * 1_000_000], "m")
    values = (np.arange(N) + 0.5) / N
    tables = replicate(mechanism, values, 0, 40, SEED)
    each = [mechanism.numeric(table, quantiles=()).mean.interval() for table in tables]
    found = np.mean([high - low for low, high in each])
    told = precision(mechanism, 0, Assumed(values=tuple(values.tolist()))).width(N)
    assert 0.96 < found / told < 1.06


def test_intervals_of_vectors_of_bits_are_as_long_as_predicted() -> None:
    spec = {"name": "sampled_vector", "dimensions": 2, "sampled": 2, "bits": 6}
    mechanism: Any = build(spec, [16_000_000], "m")
    values = (np.arange(N) + 0.5) / N
    [table] = replicate(mechanism, np.stack([values, values], axis=1), 0, 1, SEED)
    found = np.mean([np.ptp(mean.interval()) for mean in mechanism.means(table)])
    told = precision(mechanism, 0, Assumed(values=tuple(values.tolist()))).width(N)
    assert 0.98 < found / told < 1.02


@pytest.mark.parametrize("size", [16, 100])
@pytest.mark.parametrize("name", ["hadamard", "grr", "oue"])
def test_intervals_of_even_categories_are_as_long_as_predicted(name: str, size: int) -> None:
    """Other categories in the block of one are as many as chance puts there, and not all."""
    given = {"blocks": 16} if name == "hadamard" else {}
    mechanism: Any = build({"name": name, "domain_size": size, **given}, [4_000_000], "m")
    symbols = np.arange(N) % size
    [table] = replicate(mechanism, symbols, 0, 1, SEED)
    each = [found.interval() for found in mechanism.frequencies(table)]
    widths = np.mean([high - low for low, high in each])
    told = precision(mechanism, 0, Assumed(even=True))
    assert told.data == f"a true share of {100 / size:g} %, the others alike"
    assert 0.9 < widths / told.width(N) < 1.1
    assert told.width(N) <= precision(mechanism, 0, Assumed(share=1 / size)).width(N) * (1 + 1e-9)


def test_reports_are_the_least_that_are_enough() -> None:
    told = precision(build(CATEGORY[0], LADDER, "m"), 2)
    for measure in ("error", "width", "floor"):
        n = told.reports(measure, 0.02)
        assert told.measure(measure, n) <= 0.02 < told.measure(measure, n - 1)


def test_what_cannot_be_had_is_refused() -> None:
    told = precision(build(CATEGORY[0], LADDER, "m"), 2)
    with pytest.raises(ParameterError, match="must be above 0"):
        told.reports("width", 0.0)
    with pytest.raises(ParameterError, match="measure"):
        told.measure("height", 10)
    rappor = build({"name": "rappor", "bits": 8, "hashes": 1, "cohorts": 1}, LADDER, "s")
    with pytest.raises(ParameterError, match="told apart"):
        precision(rappor, 0, Assumed(candidates=tuple(map(str, range(20)))))
