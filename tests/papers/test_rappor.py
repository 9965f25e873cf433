"""The loss of filters, against the paper's values and at both ends."""

from __future__ import annotations

import math

import pytest
from vectors import Vector, vectors

from mechanisms.string.rappor import Rappor
from papers.rappor import differing_bits_epsilon, expected_differing_bits


@vectors("rappor_worst")
def test_the_worst_loss_of_filters(vector: Vector) -> None:
    hashes, f = vector.inputs["h"], vector.inputs["f"]
    vector.check(differing_bits_epsilon(2 * hashes, f))
    mechanism = Rappor(vector.expected, bits=128, hashes=hashes)
    assert mechanism.f == pytest.approx(f, abs=1e-6)
    assert mechanism.certified_epsilon == pytest.approx(vector.expected, abs=2e-6)


@pytest.mark.parametrize(
    ("bits", "hashes", "expected"),
    [(1, 3, 0.0), (2, 1, 1.0), (10**15, 1, 2 - 2e-15), (10**15, 8, 16 - 184e-15)],
)
def test_bits_that_differ_at_both_ends(bits: int, hashes: int, expected: float) -> None:
    assert expected_differing_bits(bits, hashes) == pytest.approx(expected, rel=1e-14)


def test_the_loss_of_filters_loses_nothing_near_no_privacy_and_near_none() -> None:
    assert differing_bits_epsilon(4, 1 - 2**-40) == pytest.approx(8 * 2**-40, rel=1e-11)
    assert differing_bits_epsilon(2, 1e-300) == pytest.approx(2 * math.log(2e300), rel=1e-14)
