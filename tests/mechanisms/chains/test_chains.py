"""Chains of inputs that are themselves drawn at random, and draws over every sequence of bits."""

from __future__ import annotations

from fractions import Fraction

import pytest
from small import chain_law, coarse_symbols
from sources import HighBits, exact_law

from mechanisms.chains.bits import BitChain, BitLadder
from mechanisms.levels import Probabilities


def test_symbol_chains_are_drawn_by_their_law() -> None:
    chain = coarse_symbols()
    for symbol in (0, 1):
        law = exact_law(lambda source: tuple(chain.draw(symbol, HighBits(source, 3))))  # noqa: B023
        assert law == chain_law(chain, symbol)


@pytest.mark.parametrize(
    ("one", "flips", "width"),
    [(7 << 61, (1 << 62, 1 << 61), 1), (1 << 63, (1 << 62, 1 << 61), 1), (3 << 62, (1 << 61,), 2)],
    ids=["symmetric", "one-sided", "two bits"],
)
def test_bit_chains_are_drawn_by_their_law(one: int, flips: tuple[int, ...], width: int) -> None:
    zero = 2**64 - one if one != 1 << 63 else 1 << 61
    rungs = (Probabilities(Fraction(0), Fraction(0)),) * (len(flips) + 1)
    chain = BitChain(width, (BitLadder(one, zero, flips, rungs),))
    for bits in (0, 1):
        law = exact_law(lambda source: tuple(chain.draw(bits, source)))  # noqa: B023
        assert law == {out: share for out, share in chain_law(chain, bits).items() if share}
