"""Mechanisms for numbers as people make them, and the papers' values for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from statistical import check_normal
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.number.gridded import DuchiOneBit, HybridMechanism
from mechanisms.number.random_threshold import RandomThreshold
from mechanisms.number.sampled_bits import SampledBit, SampledBits
from mechanisms.number.split_bits import SplitBits
from mechanisms.testing import SeededSource

SEED = 1618033988

MAKERS: dict[str, Callable[[float], Any]] = {
    "threshold": partial(RandomThreshold, missing=True),
    "sampled": partial(SampledBit, bits=8),
    "several": partial(SampledBits, bits=8, count=2),
    "split": partial(SplitBits, bits=8, missing=True),
    "duchi": DuchiOneBit,
    "hybrid": partial(HybridMechanism, points=9),
}
every_mechanism = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


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
def test_means_are_estimated_on_the_mechanism_itself(make: Callable[[float], Any]) -> None:
    mechanism, n = make(2.0), 50_000
    generator = np.random.default_rng(SEED)
    ids = generator.integers(0, 2**64, size=(n, 2), dtype=np.uint64)
    values = generator.beta(2, 5, size=n)
    reports = mechanism.report(values, SeededSource(SEED), ids)
    mean = mechanism.numeric(mechanism.tally(reports, ids), -10.0, 30.0).mean
    check_normal(mean.value, 40 * values.mean() - 10, mean.standard_error, label=f"seed {SEED}")


@vectors("split_alloc")
def test_shares_of_split_bits(vector: Vector) -> None:
    mechanism = SplitBits(vector.inputs["eps"], vector.inputs["l"])
    vector.check(list(mechanism.shares), vector.expected["eps_bits"])


def test_a_presence_bit_weighs_as_much_as_the_first() -> None:
    shares = SplitBits(1.0, 4, missing=True).shares
    assert shares[-1] == shares[0]
    assert sum(shares) == pytest.approx(1)
