"""Binary encodings: round trips, ranges, and the weights of bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.errors import ParameterError
from mechanisms.papers.encoding import OffsetBinary, SignMagnitude

SHAPES = st.integers(2, 52).flatmap(lambda bits: st.tuples(st.just(bits), st.integers(0, bits - 1)))


@given(SHAPES, st.data())
def test_sign_magnitude_gives_back_what_it_can_hold(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    encoding = SignMagnitude(*shape)
    point = data.draw(st.integers(-(2 ** (shape[0] - 1)) + 1, 2 ** (shape[0] - 1) - 1))
    value = point * encoding.step
    assert encoding.decode(encoding.encode([value])).tolist() == [value]


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


@given(st.integers(1, 52), st.data())
def test_offset_binary_gives_back_every_point(bits: int, data: st.DataObject) -> None:
    encoding = OffsetBinary(bits)
    point = data.draw(st.integers(0, 2**bits - 1))
    digits = [point >> shift & 1 for shift in range(bits - 1, -1, -1)]
    value = encoding.decode(digits)
    assert -1 <= value <= 1
    if bits < 51:
        # Above, neighbouring points differ by less than a float near one can tell.
        assert encoding.encode(value).tolist() == digits


@given(st.integers(1, 40), st.floats(-3, 8))
def test_offset_binary_goes_to_the_nearest_point(bits: int, value: float) -> None:
    encoding = OffsetBinary(bits, low=-2.0, high=5.0)
    decoded = float(encoding.decode(encoding.encode(value)))
    inside = min(max(value, -2.0), 5.0)
    assert abs(decoded - inside) <= encoding.step / 2 * (1 + 1e-9) + 1e-14
    assert math.isclose(sum(encoding.weights), 1, rel_tol=1e-15)


def test_decoding_keeps_the_mean_of_independent_bits() -> None:
    """Sign and magnitude: the expected number is what the expected bits decode to."""
    encoding = SignMagnitude(bits=4, integer_bits=1)
    ones = np.array([0.3, 0.8, 0.5, 0.9])
    mean = 0.0
    for outcome in range(16):
        bits = np.array([outcome >> i & 1 for i in range(4)])
        mean += float(np.prod(np.where(bits, ones, 1 - ones)) * encoding.decode(bits))
    assert math.isclose(mean, float(encoding.decode(ones)), rel_tol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SignMagnitude(1, 0), "bits must lie"),
        (lambda: SignMagnitude(53, 0), "bits must lie"),
        (lambda: SignMagnitude(4, 4), "integer_bits must lie"),
        (lambda: OffsetBinary(0), "bits must lie"),
        (lambda: OffsetBinary(4, 1.0, 1.0), "range must be"),
        (lambda: OffsetBinary(4, math.nan, 1.0), "range must be"),
        (lambda: OffsetBinary(4).encode([math.nan]), "finite"),
        (lambda: OffsetBinary(4).decode([0, 1, 0]), "shape"),
    ],
)
def test_what_cannot_be_encoded_is_refused(make: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()  # type: ignore[operator]
