"""Variances in closed form against the verified values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vectors import Vector, vectors

from mechanisms.estimators.variance import (
    bit_means,
    one_bit_variance,
    sampled_bit_variance,
    share_variance,
    split_bits_variance,
    threshold_variance,
)
from mechanisms.registry import build


def answer(epsilon: float) -> tuple[float, float]:
    """Binary randomized response."""
    p = 1 / (1 + math.exp(-epsilon))
    return p, 1 / (1 + math.exp(epsilon))


@vectors("var_rr")
def test_binary_response(vector: Vector) -> None:
    vector.check(share_variance(*answer(vector.inputs["eps"]), 0.5) / vector.inputs["N"])


@vectors("mean_var")
def test_one_bit_response(vector: Vector) -> None:
    unit = (vector.inputs["x"] + 1) / 2
    got = 4 * one_bit_variance(*answer(vector.inputs["eps"]), unit)
    vector.check(got, vector.expected["duchi_or_1bit"])


@vectors("push_var")
def test_one_sampled_bit_unstratified(vector: Vector) -> None:
    vector.check(4 * one_bit_variance(*answer(vector.inputs["eps"]), (vector.inputs["x"] + 1) / 2))


@vectors("kpush_var")
def test_several_draws(vector: Vector) -> None:
    k = vector.inputs["k"]
    each = answer(vector.inputs["eps"] / k)
    vector.check(4 * one_bit_variance(*each, (vector.inputs["x"] + 1) / 2) / k)


@vectors("thr_var")
def test_random_threshold(vector: Vector) -> None:
    unit = (np.array(vector.inputs["xs"]) + 1) / 2
    vector.check(4 * threshold_variance(*answer(vector.inputs["eps"]), unit))


@vectors("split_alloc")
def test_split_bits(vector: Vector) -> None:
    pairs = [answer(epsilon) for epsilon in vector.expected["eps_bits"]]
    whole = np.array([0.0, 1.0])
    got = 4 * split_bits_variance(pairs, whole)
    assert got == pytest.approx(vector.expected["variance_on_minus1_1"], rel=1e-7)
    bits = len(pairs)
    split = build(
        {"name": "split_bits", "bits": bits, "missing": False},
        [round(vector.inputs["eps"] * 1e6)],
        "m",
    )
    assert 4 * split_bits_variance(split.probabilities(0), whole) == pytest.approx(got, 1e-5)


def test_threshold_is_never_worse_than_one_bit_and_uniform_data_are_worst() -> None:
    rng = np.random.default_rng(3)
    pair = answer(1.0)
    uniform = threshold_variance(*pair, (np.arange(1000) + 0.5) / 1000)
    assert uniform == pytest.approx(share_variance(*pair, 0.5) + 1 / 12, abs=1e-4)
    for values in (rng.beta(2, 20, 500), rng.beta(0.2, 0.3, 500), np.repeat([0.0, 0.3, 1.0], 9)):
        stratified = threshold_variance(*pair, values)
        assert stratified <= uniform + 1e-3
        assert stratified <= np.mean([one_bit_variance(*pair, x) for x in values]) + 1e-12


def test_many_strata_are_the_limit() -> None:
    pair, values = answer(1.0), np.random.default_rng(6).beta(2, 5, 400)
    limit = threshold_variance(*pair, values)
    by_strata = [threshold_variance(*pair, values, strata=2**k) for k in range(11)]
    assert by_strata == sorted(by_strata, reverse=True)
    assert by_strata[0] == pytest.approx(one_bit_variance(*pair, values.mean()) - values.var())
    assert by_strata[-1] == pytest.approx(limit, rel=1e-5)


def test_sampled_bits_are_between() -> None:
    pair, values = answer(2.0), np.random.default_rng(4).beta(2, 5, 500)
    plain = np.mean([one_bit_variance(*pair, x) for x in values])
    assert share_variance(*pair, 0.5) < sampled_bit_variance(*pair, values, 8) <= plain + 1e-12


def test_bit_means_keep_the_mean() -> None:
    values = np.random.default_rng(5).random(300)
    for bits in (1, 2, 7, 20):
        weights = 2.0 ** np.arange(bits - 1, -1, -1) / (2**bits - 1)
        assert weights @ bit_means(values, bits) == pytest.approx(values.mean(), abs=1e-12)
