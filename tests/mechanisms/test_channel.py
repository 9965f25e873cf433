"""Exact channels: what they refuse, lose and become together."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mechanisms.channel import Channel
from mechanisms.errors import ParameterError

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def bit(flip: Fraction) -> Channel:
    return Channel(((1 - flip, flip), (flip, 1 - flip)))


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ((),),
        ((HALF, THIRD),),
        ((Fraction(3, 2), -HALF),),
        ((HALF, HALF), (Fraction(1),)),
    ],
)
def test_what_is_no_channel_is_refused(rows: tuple[tuple[Fraction, ...], ...]) -> None:
    with pytest.raises(ParameterError, match="channel"):
        Channel(rows)


def test_the_largest_ratio_is_over_all_outputs_and_pairs_of_inputs() -> None:
    channel = Channel(
        (
            (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4), Fraction(0)),
            (Fraction(1, 4), Fraction(1, 2), Fraction(1, 4), Fraction(0)),
            (Fraction(5, 8), Fraction(1, 8), Fraction(1, 4), Fraction(0)),
        )
    )
    assert channel.ratio() == 4
    assert channel.certified == 1_386_295


def test_an_output_that_gives_an_input_away_is_refused() -> None:
    with pytest.raises(ParameterError, match="certainty"):
        Channel(((Fraction(1), Fraction(0)), (HALF, HALF))).ratio()


def test_a_channel_that_ignores_its_input_costs_nothing() -> None:
    assert Channel(((HALF, HALF), (HALF, HALF))).certified == 0


def test_channels_one_after_another() -> None:
    product = bit(Fraction(1, 4)).then(bit(Fraction(1, 8)))
    assert product == bit(Fraction(1, 4) + Fraction(1, 8) - 2 * Fraction(1, 32))
    with pytest.raises(ParameterError, match="do not fit"):
        bit(HALF).then(Channel(((Fraction(1),),)))


def test_degrading_never_costs_more() -> None:
    assert bit(THIRD).then(bit(Fraction(1, 9))).ratio() < bit(THIRD).ratio()
