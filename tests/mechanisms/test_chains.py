"""Whole chains, enumerated in exact fractions: what they cost, their marginals, both directions.

Every mechanism on every ladder passes this suite. That the code draws by these laws is held by
``test_sampling.py`` (single draws), by the last tests here (chains of coarse thresholds, every
sequence of bits tried), and statistically by ``test_ladders.py``.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from small import CASES, AnyChain, Case, chain_law, coarse_symbols, encodings, head_law, level_law
from sources import HighBits, exact_law

from mechanisms.chains.bits import BitChain, BitLadder
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.supporting import SupportChain
from mechanisms.chains.symbols import SymbolChain, SymbolDraw, symbol_chain
from mechanisms.channel import bit_channel, compose, symbol_channel
from mechanisms.exact import exp_micro, loss_micro
from mechanisms.levels import Probabilities
from mechanisms.number.split_bits import split_bits_ladder
from mechanisms.papers.gradual_release.channels import degradation

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def worst_ratio(laws: list[dict[tuple[int, ...], Fraction]]) -> Fraction:
    return max(
        max(column) / min(column)
        for column in ([law[outputs] for law in laws] for outputs in laws[0])
    )


@every_case
def test_a_chain_costs_exactly_what_its_strongest_rung_is_certified_at(case: Case) -> None:
    mechanism = case.build()
    laws = [chain_law(mechanism.chain, encoded) for encoded in encodings(mechanism)]
    for law in laws:
        assert sum(law.values()) == 1
    ratio = worst_ratio(laws)
    assert ratio == worst_ratio([level_law(law, -1) for law in laws])
    certified = mechanism.certified(mechanism.levels - 1)
    assert ratio <= exp_micro(certified)[0]
    assert loss_micro(ratio) == certified


@every_case
def test_a_chain_up_to_a_rung_costs_what_that_rung_is_certified_at(case: Case) -> None:
    mechanism = case.build()
    laws = [chain_law(mechanism.chain, encoded) for encoded in encodings(mechanism)]
    for level in range(mechanism.levels):
        ratio = worst_ratio([head_law(law, level + 1) for law in laws])
        assert loss_micro(ratio) == mechanism.certified(level)


@every_case
def test_certified_amounts_increase_and_never_exceed_the_nominal_ones(case: Case) -> None:
    mechanism = case.build()
    amounts = [mechanism.certified(level) for level in range(mechanism.levels)]
    assert amounts == sorted(set(amounts))
    assert [mechanism.nominal(level) for level in range(mechanism.levels)] == list(case.ladder)
    for have, want in zip(amounts, case.ladder, strict=True):
        assert want - 1 <= have <= want


@every_case
def test_the_marginals_of_a_chain_are_its_rungs(case: Case) -> None:
    mechanism = case.build()
    for encoded in encodings(mechanism):
        law = chain_law(mechanism.chain, encoded)
        for level in range(mechanism.levels):
            rungs, outputs = mechanism.exact(level), level_law(law, level)
            if isinstance(mechanism.chain, SymbolChain):
                for symbol in range(mechanism.chain.size):
                    assert outputs[symbol,] == (rungs[0].p if symbol == encoded else rungs[0].q)
            elif isinstance(mechanism.chain, FiniteChain):
                row = mechanism.chain.channel(level).rows[encoded]
                assert [outputs[output,] for output in range(len(row))] == list(row)
            elif isinstance(mechanism.chain, SupportChain):
                for (output,), share in outputs.items():
                    assert share == mechanism.chain.probability(encoded, output, level)
            else:
                for index in range(mechanism.chain.width):
                    share = sum(s for (output,), s in outputs.items() if output >> index & 1)
                    rung = rungs[index % len(rungs)]
                    assert share == (rung.p if encoded >> index & 1 else rung.q)
            floats = [(float(rung.p), float(rung.q)) for rung in rungs]
            assert [tuple(pair) for pair in mechanism.probabilities(level)] == floats


@pytest.mark.slow
@every_case
def test_rungs_are_degradations_by_the_thresholds_that_are_drawn_with(case: Case) -> None:
    """Solved from the rungs' matrices alone, the degradation is the one in integers."""
    chain = case.build().chain
    if isinstance(chain, SymbolChain):
        levels = [chain.channel(level) for level in range(len(chain.exact))]
        pairs = [(levels, [symbol_channel(chain.size, *step.rung) for step in chain.degradations])]
    elif isinstance(chain, FiniteChain):
        levels = [chain.channel(level) for level in range(chain.levels)]
        for level, step in enumerate(chain.steps):
            noise = symbol_channel(chain.size, *step.rung)
            assert levels[level + 1].then(noise) == levels[level]
            found = degradation(levels[level], levels[level + 1])
            assert levels[level + 1].then(found) == levels[level]
        return
    elif isinstance(chain, SupportChain):
        levels = [chain.channel(level) for level in range(chain.levels)]
        # Where columns depend on each other the degradation is not the only one.
        for level, keep in enumerate(chain.keeps):
            noise = Fraction(2**64 - keep, 2**64) / chain.total
            step = symbol_channel(chain.total, Fraction(keep, 2**64) + noise, noise)
            assert levels[level + 1].then(step) == levels[level]
            found = degradation(levels[level], levels[level + 1])
            assert levels[level + 1].then(found) == levels[level]
        return
    else:
        pairs = []
        for ladder in chain.ladders:
            flips = [Fraction(flip, 2**64) for flip in ladder.flips]
            levels = [ladder.channel(level) for level in range(chain.levels)]
            pairs.append((levels, [bit_channel(1 - flip, flip) for flip in flips]))
    for levels, steps in pairs:
        for level, step in enumerate(steps):
            assert degradation(levels[level], levels[level + 1]) == step
            assert compose([levels[-1], *reversed(steps[level:])]) == levels[level]


def kernel(chain: AnyChain, encoded: int, before: int, level: int) -> dict[int, Fraction]:
    """The law that ``forward`` draws from, from its integer weights."""
    if isinstance(chain, SymbolChain | FiniteChain):
        weights = chain.forward_weights([(encoded, 1)], before, level)
        return {out: Fraction(weight, sum(weights.values())) for out, weight in weights.items()}
    if isinstance(chain, SupportChain):
        kept = chain.forward_weights(encoded, before, level)
        new = Fraction(kept[0], sum(kept.values()))
        return {
            out: new * chain.probability(encoded, out, level) + (out == before) * (1 - new)
            for out in chain.outputs()
        }
    law = {0: Fraction(1)}
    for index in range(chain.width):
        bits = chain.bit_weights(index, encoded >> index & 1, before >> index & 1, level)
        whole = sum(bits.values())
        law = {
            out | bit << index: share * Fraction(weight, whole)
            for out, share in law.items()
            for bit, weight in bits.items()
        }
    return law


@every_case
def test_forward_and_backward_have_the_same_law(case: Case) -> None:
    mechanism = case.build()
    chain = mechanism.chain
    for encoded in encodings(mechanism):
        backward = chain_law(chain, encoded)
        forward = head_law(backward, 1)
        for level in range(1, mechanism.levels):
            steps = {
                before: kernel(chain, encoded, before, level)
                for before in {outputs[-1] for outputs in forward}
            }
            forward = {
                (*outputs, out): share * step
                for outputs, share in forward.items()
                for out, step in steps[outputs[-1]].items()
            }
        assert forward == backward


@pytest.mark.parametrize("missing", [False, True])
def test_forward_and_backward_agree_where_the_value_itself_is_rounded_at_random(
    missing: bool,
) -> None:
    """A split-bits value between two grid points is a mixture, and so is a sampled bit's."""
    mechanism = split_bits_ladder(2, missing, [500_000, 2_000_000], "metric")
    chain = mechanism.chain
    prior = mechanism.prior(0.4, b"")
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


class TestFaultsAreCaught:
    """The suite's own checks fail where a fault is planted."""

    def test_a_redrawn_rung_costs_more_than_its_strongest(self) -> None:
        """Fresh responses at 0.5 and 1, instead of a degradation, add up."""
        weak, strong = symbol_chain(2, [500_000]), symbol_chain(2, [1_000_000])
        laws = [
            {
                (one, two): chain_law(weak, x)[one,] * chain_law(strong, x)[two,]
                for one in (0, 1)
                for two in (0, 1)
            }
            for x in (0, 1)
        ]
        assert loss_micro(worst_ratio(laws)) == 1_500_000

    def test_a_threshold_five_percent_off_exceeds_the_certified_amount(self) -> None:
        chain = symbol_chain(3, [1_000_000])
        other = chain.strongest.other * 95 // 100
        draw = SymbolDraw(3, 2**64 - 2 * other, other)
        faulty = SymbolChain(3, draw, (), (draw.rung,))
        ratio = worst_ratio([chain_law(faulty, x) for x in range(3)])
        assert ratio > exp_micro(1_000_000)[1]


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
