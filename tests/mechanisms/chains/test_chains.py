"""Chains of inputs that are themselves drawn at random, and draws over every sequence of bits."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
from small import chain_law, coarse_symbols, head_law, kernel, prior_of
from sources import HighBits, exact_law

from mechanisms.chains.bits import BitChain, BitLadder
from mechanisms.chains.symbols import symbol_chain
from mechanisms.levels import Probabilities
from mechanisms.registry import build


@pytest.mark.parametrize("missing", [False, True])
def test_forward_and_backward_agree_where_the_value_itself_is_rounded_at_random(
    missing: bool,
) -> None:
    """A split-bits value between two grid points is a mixture, and so is a sampled bit's."""
    mechanism: Any = build(
        {"name": "split_bits", "bits": 2, "missing": missing}, [500_000, 2_000_000], "m"
    )
    chain = mechanism.chain
    prior = prior_of(mechanism, 0.4)
    assert len(prior) == 2
    whole = sum(weight for _, weight in prior)
    backward: dict[tuple[int, ...], Fraction] = {}
    for bits, weight in prior:
        for outputs, share in chain_law(chain, bits).items():
            backward[outputs] = backward.get(outputs, Fraction(0)) + share * Fraction(weight, whole)
    for (before,), first in head_law(backward, 1).items():
        posterior = chain.posterior_weights(prior, before, 0)
        mixed: dict[int, Fraction] = {}
        for bits, weight in posterior.items():
            for out, share in kernel(chain, bits, before, 1).items():
                part = share * Fraction(weight, sum(posterior.values()))
                mixed[out] = mixed.get(out, Fraction(0)) + part
        for out, share in mixed.items():
            assert first * share == backward[before, out]


def test_forward_weights_of_a_symbol_drawn_at_random() -> None:
    chain = symbol_chain(2, [500_000, 1_000_000])
    prior = [(0, 3), (1, 5)]
    joint = {
        outputs: sum(Fraction(w, 8) * chain_law(chain, x)[outputs] for x, w in prior)
        for outputs in itertools.product((0, 1), repeat=2)
    }
    for before in (0, 1):
        weights = chain.forward_weights(prior, before, 1)
        whole = joint[before, 0] + joint[before, 1]
        for out in (0, 1):
            assert Fraction(weights[out], sum(weights.values())) == joint[before, out] / whole


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
