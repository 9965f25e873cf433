"""The contract of every mechanism at a single epsilon, and the papers' values for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from statistical import check_normal
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.number.random_threshold import RandomThreshold
from mechanisms.number.sampled_bit import SampledBit
from mechanisms.number.split_bits import SplitBits
from mechanisms.single import SingleLevel
from mechanisms.testing import SeededSource

SEED = 1618033988

MAKERS: dict[str, Callable[[float], Any]] = {
    "threshold": RandomThreshold,
    "threshold, missing": partial(RandomThreshold, missing=True),
    "sampled": partial(SampledBit, bits=8),
    "split": partial(SplitBits, bits=8, missing=True),
}
every_mechanism = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def report(mechanism: SingleLevel, n: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Some values, the identifiers of their coins, and their reports."""
    generator = np.random.default_rng(SEED)
    identifiers = generator.integers(0, 2**64, size=(n, 2), dtype=np.uint64)
    source = SeededSource(SEED)
    numbers = generator.beta(2, 5, size=n)
    return numbers, identifiers, mechanism.randomize(numbers, identifiers, source)


@every_mechanism
@pytest.mark.parametrize("epsilon", [math.nan, 0.0, -1.0, math.inf, 1e-7, 1001.0])
def test_an_epsilon_that_cannot_be_honoured_is_refused(
    make: Callable[[float], Any], epsilon: float
) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        make(epsilon)


@every_mechanism
def test_parameters_of_another_type_are_refused(make: Callable[[float], Any]) -> None:
    mechanism = make(1.0)
    kinds = {"int": (True, 2.0, "4", None, np.int64(4), (3,)), "bool": (1, 0.0, "no", None)}
    for given in fields(mechanism):
        for wrong in kinds.get(str(given.type), ()):
            with pytest.raises(ParameterError, match=f"{given.name} must be of type {given.type}"):
                replace(mechanism, **{given.name: wrong})


@every_mechanism
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, math.log(3), 8.0])
def test_the_certified_loss_is_the_nominal_one_rounded(
    make: Callable[[float], Any], epsilon: float
) -> None:
    mechanism = make(epsilon)
    assert 0 < mechanism.certified <= epsilon * 1e6 + 1e-6
    assert mechanism.certified_epsilon == pytest.approx(epsilon, abs=2e-6)
    assert 0 < mechanism.q < mechanism.p < 1


@every_mechanism
def test_a_mechanism_is_a_value(make: Callable[[float], Any]) -> None:
    mechanism = make(1.0)
    assert mechanism == make(1.0)
    assert mechanism != make(2.0)
    assert hash(mechanism) == hash(make(1.0))
    assert "ladder" not in repr(mechanism)
    with pytest.raises(FrozenInstanceError):
        mechanism.epsilon = 2.0


@every_mechanism
def test_reports_and_counts(make: Callable[[float], Any]) -> None:
    mechanism, n = make(1.0), 500
    values, identifiers, reports = report(mechanism, n)
    untouched, _, again = report(mechanism, n)
    np.testing.assert_array_equal(values, untouched)
    np.testing.assert_array_equal(reports, again)
    assert reports.shape == (n, mechanism.ladder.payload_width)
    assert reports.dtype == np.uint8
    extra = (identifiers,)
    counts = mechanism.count(reports, *extra)
    assert counts.shape == (mechanism.ladder.count_length,)
    assert counts.dtype == np.int64
    halves = [
        mechanism.count(reports[part], *(column[part] for column in extra))
        for part in (slice(0, 123), slice(123, n))
    ]
    np.testing.assert_array_equal(counts, halves[0] + halves[1])


@pytest.mark.parametrize("name", ["threshold", "sampled", "split"])
def test_means_are_estimated_on_the_mechanism_itself(name: str) -> None:
    mechanism, n = MAKERS[name](2.0), 50_000
    values, identifiers, reports = report(mechanism, n)
    mean = mechanism.estimate(mechanism.count(reports, identifiers), -10.0, 30.0).mean
    check_normal(mean.value, 40 * values.mean() - 10, mean.standard_error, label=f"seed {SEED}")


@vectors("split_alloc")
def test_shares_of_split_bits(vector: Vector) -> None:
    mechanism = SplitBits(vector.inputs["eps"], vector.inputs["l"])
    vector.check(list(mechanism.shares), vector.expected["eps_bits"])


def test_a_presence_bit_weighs_as_much_as_the_first() -> None:
    shares = SplitBits(1.0, 4, missing=True).shares
    assert shares[-1] == shares[0]
    assert sum(shares) == pytest.approx(1)
