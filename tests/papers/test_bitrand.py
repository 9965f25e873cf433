"""BitRand as published: its probabilities, what it really costs, and that it is drawn so."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statistical import check_counts, check_normal

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.testing import SeededSource
from papers.bitrand import (
    FeatureRandomizedResponse,
    SignMagnitude,
    frr_losses,
    label_keeping,
    log_alpha,
)

SEED = 20241105


@pytest.mark.parametrize(
    ("features", "row"),
    [
        (1, (3.42, 3.93, 6.50, 16.8, 36.5)),
        (10, (34.7, 42.7, 69.9, 179, 388)),
        (1000, (3474, 4311, 7045, 18046, 39140)),
    ],
)
def test_the_true_epsilon_is_not_the_nominal_one(features: int, row: tuple[float, ...]) -> None:
    for epsilon, expected in zip((0.1, 1, 2, 5, 10), row, strict=True):
        frr = FeatureRandomizedResponse(epsilon, features, bits=10, integer_bits=5)
        assert float(f"{frr.certified_epsilon:.3g}") == float(f"{expected:.3g}")
        assert frr.certified_epsilon > 3 * epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_true_loss_is_the_worst_case_by_enumeration(epsilon: float) -> None:
    """All pairs of vectors of two features of four bits, all outputs."""
    frr = FeatureRandomizedResponse(epsilon, features=2, bits=4, integer_bits=1)
    losses = frr_losses(epsilon, 2, 4) * 2
    # Bits are independent: each is the same in both vectors, or differs and is kept or flipped.
    signs = itertools.product((0, 1, -1), repeat=8)
    worst = max(math.fsum(s * loss for s, loss in zip(each, losses, strict=True)) for each in signs)
    assert frr.certified_epsilon == pytest.approx(worst)


@given(st.floats(1e-9, 700, allow_nan=False), st.integers(1, 1000), st.integers(1, 20))
def test_the_formulas_are_stable(epsilon: float, features: int, bits: int) -> None:
    losses = frr_losses(epsilon, features, bits)
    assert all(math.isfinite(loss) for loss in losses)
    # The sum of squares of the odds is what Theorem 2 allows.
    top = max(losses)
    logarithm = 2 * top + math.log(math.fsum(math.exp(2 * (loss - top)) for loss in losses))
    allowed = math.log((epsilon + features * bits) / (2 * features))
    assert math.isclose(logarithm, allowed, rel_tol=1e-9, abs_tol=1e-9)
    assert log_alpha(epsilon, features, bits) == losses[0]


def test_bits_are_flipped_as_often_as_stated() -> None:
    frr = FeatureRandomizedResponse(5.0, features=2, bits=6, integer_bits=2)
    n = 20_000
    values = np.tile([1.5, -2.625], (n, 1))
    reports = frr.randomize(values, SeededSource(SEED))
    assert reports.shape == (n, 2, 6)
    assert reports.dtype == np.uint8
    flipped = (reports != frr.encoding.encode(values)).sum(axis=(0, 1))
    for count, p in zip(flipped, frr.probabilities, strict=True):
        check_counts([count, 2 * n - count], [1 - p, p], label=f"seed {SEED}")
    wrong = 0.95 * frr.probabilities[0]
    with pytest.raises(AssertionError, match="off"):
        check_counts([flipped[0], 2 * n - flipped[0]], [1 - wrong, wrong])


def test_debiased_numbers_are_unbiased_and_published_ones_are_not() -> None:
    frr = FeatureRandomizedResponse(8.0, features=1, bits=4, integer_bits=1)
    assert frr.inverted_bits
    n = 40_000
    reports = frr.randomize(np.full((n, 1), -1.25), SeededSource(SEED))
    unbiased = frr.debiased(reports)[:, 0]
    error = unbiased.std() / math.sqrt(n)
    check_normal(unbiased.mean(), -1.25, error, label=f"seed {SEED}")
    published = frr.decode(reports)[:, 0]
    with pytest.raises(AssertionError, match="off"):
        check_normal(published.mean(), -1.25, published.std() / math.sqrt(n))


def test_label_randomized_response_is_generalized_randomized_response() -> None:
    grr = GeneralizedRandomizedResponse(epsilon=1.5, domain_size=7)
    p, q = label_keeping(1.5, 7)
    assert math.isclose(grr.p, p, rel_tol=1e-15)
    assert math.isclose(grr.q, q, rel_tol=1e-15)
    beta = 1.5 - math.log(6)
    assert math.isclose(p, math.exp(beta) / (1 + math.exp(beta)), rel_tol=1e-14)


SHAPES = st.integers(2, 52).flatmap(lambda bits: st.tuples(st.just(bits), st.integers(0, bits - 1)))


@given(SHAPES, st.floats(-1e6, 1e6))
def test_sign_magnitude_rounds_toward_zero_and_clips(shape: tuple[int, int], value: float) -> None:
    encoding = SignMagnitude(*shape)
    bits = encoding.encode(value)
    decoded = float(encoding.decode(bits))
    inside = min(max(value, -encoding.limit), encoding.limit)
    assert abs(decoded) <= abs(inside) < abs(decoded) + encoding.step
    assert decoded * value >= 0
    assert bits.shape == (shape[0],)
    assert bits.dtype == np.uint8
    assert (encoding.encode(decoded)[1:] == bits[1:]).all()


def test_sign_magnitude_is_the_formula_of_the_paper() -> None:
    encoding = SignMagnitude(bits=10, integer_bits=5)
    for value in (0.0, 1.0, 13.6875, -31.9, 0.061):
        [bits] = encoding.encode([value])
        assert bits[0] == (value >= 0)
        for i in range(1, 10):
            assert bits[i] == math.floor(2.0 ** (i - 5) * abs(value)) % 2
