"""Variances in closed form against the verified values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from vectors import Vector, vectors

from mechanisms.estimators.variance import bit_means, share_variance, split_bits_variance
from mechanisms.registry import build


def answer(epsilon: float) -> tuple[float, float]:
    """Binary randomized response."""
    p = 1 / (1 + math.exp(-epsilon))
    return p, 1 / (1 + math.exp(epsilon))


@vectors("var_rr")
def test_binary_response(vector: Vector) -> None:
    vector.check(share_variance(*answer(vector.inputs["eps"]), 0.5) / vector.inputs["N"])


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


def test_bit_means_keep_the_mean() -> None:
    values = np.random.default_rng(5).random(300)
    for bits in (1, 2, 7, 20):
        weights = 2.0 ** np.arange(bits - 1, -1, -1) / (2**bits - 1)
        assert weights @ bit_means(values, bits) == pytest.approx(values.mean(), abs=1e-12)
