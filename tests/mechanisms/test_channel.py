"""Exact channels: what they refuse, lose and become together."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.channel import Channel, use_channel
from mechanisms.errors import ParameterError

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def bit(flip: Fraction) -> Channel:
    return Channel(((1 - flip, flip), (flip, 1 - flip)))


@pytest.mark.parametrize(
    "rows",
    [(), ((),), ((HALF, THIRD),), ((Fraction(3, 2), -HALF),), ((HALF, HALF), (Fraction(1),))],
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


def seen(
    last: list[dict[int, Fraction]],
    weaker: list[dict[int, Fraction]],
    uses: tuple[bool, ...],
    theft: int | None,
) -> dict[tuple[int | None, int], Fraction]:
    """Return the law of what a theft after so many moments and the report at the end show.

    ``uses`` says at which moments there is a use. All responses are followed, one after another.
    """
    laws: dict[tuple[int, int | None], Fraction]
    laws = {(held, None): last[0][held] for held in (0, 1)}
    for moment in range(len(uses) + 1):
        if moment == theft:
            laws = {(held, held): chance for (held, _), chance in laws.items()}
        if moment < len(uses) and uses[moment]:
            found: dict[tuple[int, int | None], Fraction] = {}
            for (_, stolen), chance in laws.items():
                for held in (0, 1):
                    place = held, stolen
                    found[place] = found.get(place, Fraction(0)) + chance * last[1][held]
            laws = found
    shown: dict[tuple[int | None, int], Fraction] = {}
    for (held, stolen), chance in laws.items():
        for report in (0, 1):
            place = stolen, report
            shown[place] = shown.get(place, Fraction(0)) + chance * weaker[held][report]
    return shown


@pytest.mark.parametrize(
    ("sent", "held", "loss"), [(2.0, 2.2, 5.790), (2.0, 2.6885, 5.316), (1.0, 1.2, 3.549)]
)
def test_a_held_response_loses_no_more_in_any_history_of_uses(
    sent: float, held: float, loss: float
) -> None:
    """All uses at three moments and all moments of a theft; references of the scheme's proof."""
    chain = GeneralizedRandomizedResponse((sent, held), 2).chain
    last = [chain.law(symbol, 1) for symbol in (0, 1)]
    weaker = [chain.step(output, 0) for output in (0, 1)]
    for theft, most in ((None, sent), (0, None), (1, None), (2, None), (3, None)):
        rows = []
        for uses in itertools.product((False, True), repeat=3):
            law = seen(last, weaker, uses, theft)
            rows.append(tuple(law[place] for place in sorted(law, key=str)))
        found = Channel(tuple(rows)).certified
        if most is not None:
            assert round(most * 1_000_000) - 1 <= found <= round(most * 1_000_000)
        else:
            assert found <= use_channel(chain, (0, 1)).certified
    assert use_channel(chain, (0, 1)).certified == pytest.approx(loss * 1e6, abs=500)
    assert Channel(tuple(tuple(row.values()) for row in last)).certified <= round(held * 1_000_000)
    # A theft between two uses has the whole loss, and a chain drawn from the value would have more.
    thefts = [seen(last, weaker, uses, 2) for uses in itertools.product((False, True), repeat=3)]
    worst = Channel(tuple(tuple(law[p] for p in sorted(law, key=str)) for law in thefts)).certified
    assert worst == use_channel(chain, (0, 1)).certified
