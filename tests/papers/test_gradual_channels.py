"""When one channel is a degradation of another: elimination, and a linear program."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.channel import Channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import exp_bounds
from papers.gradual_release.channels import degradable, degradation, forward_kernel

HALF = Fraction(1, 2)


def bit_channel(p: Fraction, q: Fraction) -> Channel:
    """Return the channel that reports a 1 as 1 with ``p`` and a 0 as 1 with ``q``."""
    return Channel(((1 - q, q), (1 - p, p)))


FAIR = bit_channel(HALF, HALF)


def floats(channel: Channel) -> np.ndarray:
    return np.array([[float(entry) for entry in row] for row in channel.rows])


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
    assert degradable(floats(weak), floats(strong))
    try:
        step = degradation(weak, strong)
    except ParameterError:
        assert np.linalg.matrix_rank(floats(strong)) < inner
        return
    assert strong.then(step) == weak
    kernel = forward_kernel(strong, step)
    for x, rows in enumerate(kernel):
        for before, row in enumerate(rows):
            assert sum(row) == (1 if weak.rows[x][before] else 0)
            for after, entry in enumerate(row):
                joint = strong.rows[x][after] * step.rows[after][before]
                assert weak.rows[x][before] * entry == joint


def test_more_information_cannot_be_made_of_less() -> None:
    blunt, sharp = (bit_channel(Fraction(p, 4), 1 - Fraction(p, 4)) for p in (3, 4))
    assert degradation(FAIR, sharp).ratio() == 1
    assert degradation(blunt, sharp).ratio() == 3
    with pytest.raises(UnrelatedLevelsError):
        degradation(sharp, blunt)


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
