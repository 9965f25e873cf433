"""When one channel is a degradation of another: closed forms, elimination, linear program."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import exp_bounds
from papers.gradual_release.channels import (
    degradation,
    forward_kernel,
    nonnegative_solution,
)

HALF = Fraction(1, 2)


def bit_channel(p: Fraction, q: Fraction) -> Channel:
    """Return the channel that reports a 1 as 1 with ``p`` and a 0 as 1 with ``q``."""
    return Channel(((1 - q, q), (1 - p, p)))


FAIR = bit_channel(HALF, HALF)


def channel(rows: list[list[float]]) -> Channel:
    """A channel from floats whose rows sum to 1 but for rounding."""
    exact = [[Fraction(entry) for entry in row] for row in rows]
    return Channel(tuple(tuple(entry / sum(row) for entry in row) for row in exact))


def weak_and_strong(inputs: dict[str, Any]) -> tuple[Channel, Channel]:
    return (
        bit_channel(Fraction(inputs["p1_weak"]), Fraction(inputs["p0_weak"])),
        bit_channel(Fraction(inputs["p1_strong"]), Fraction(inputs["p0_strong"])),
    )


def distribution(draw: st.DrawFn, size: int) -> tuple[Fraction, ...]:
    weights = draw(
        st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(lambda row: sum(row) > 0)
    )
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


@st.composite
def channels(draw: st.DrawFn, inputs: int, outputs: int) -> Channel:
    return Channel(tuple(distribution(draw, outputs) for _ in range(inputs)))


@given(st.data())
def test_what_was_degraded_is_found_degraded(data: st.DataObject) -> None:
    """Any numbers of inputs and outputs: dependent columns, dependent rows, neither."""
    inputs, inner, outer = (data.draw(st.integers(1, 4)) for _ in range(3))
    strong = data.draw(channels(inputs, inner))
    weak = strong.then(data.draw(channels(inner, outer)))
    step = degradation(weak, strong)
    assert strong.then(step) == weak
    kernel = forward_kernel(strong, step)
    for x, rows in enumerate(kernel):
        for before, row in enumerate(rows):
            assert sum(row) == (1 if weak.rows[x][before] else 0)
            for after, entry in enumerate(row):
                joint = strong.rows[x][after] * step.rows[after][before]
                assert weak.rows[x][before] * entry == joint


def test_more_information_cannot_be_made_of_less() -> None:
    fair, sharp = FAIR, bit_channel(Fraction(3, 4), Fraction(1, 4))
    assert degradation(fair, sharp).ratio() == 1
    with pytest.raises(UnrelatedLevelsError):
        degradation(sharp, fair)


def test_optimized_and_symmetric_bits_of_the_same_epsilon_are_not_related() -> None:
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(3)):
        half, whole = exp_bounds(epsilon / 2)[0], exp_bounds(epsilon)[0]
        symmetric = bit_channel(half / (half + 1), 1 / (half + 1))
        optimized = bit_channel(HALF, 1 / (whole + 1))
        for weak, strong in ((symmetric, optimized), (optimized, symmetric)):
            with pytest.raises(UnrelatedLevelsError):
                degradation(weak, strong)


def test_channels_over_different_inputs_do_not_compare() -> None:
    with pytest.raises(ParameterError, match="inputs"):
        degradation(FAIR, Channel(((Fraction(1),),)))


@given(st.data())
def test_linear_feasibility(data: st.DataObject) -> None:
    """A system with a solution gets one; one that a combination of its rows refutes gets none."""
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    entries = st.fractions(min_value=-3, max_value=3, max_denominator=4)
    matrix = [[data.draw(entries) for _ in range(columns)] for _ in range(rows)]
    known = [data.draw(st.integers(0, 3)) for _ in range(columns)]
    right = [sum((a * x for a, x in zip(row, known, strict=True)), Fraction(0)) for row in matrix]
    found = nonnegative_solution(matrix, right)
    assert found is not None
    assert min(found) >= 0
    for row, value in zip(matrix, right, strict=True):
        assert sum((a * x for a, x in zip(row, found, strict=True)), Fraction(0)) == value
    refuted = [*matrix, [abs(sum(column)) for column in zip(*matrix, strict=True)]]
    assert nonnegative_solution(refuted, [*right, Fraction(-1)]) is None
