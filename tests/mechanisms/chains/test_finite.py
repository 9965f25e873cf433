"""Finite chains: exact laws by enumeration, rounding that never exceeds, draws that agree."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from small import LADDERS, chain_law, level_law

from mechanisms.chains.finite import FiniteChain, FiniteDraw, finite_chain, rounded
from mechanisms.chains.symbols import SymbolDraw, symbol_chain
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import exp_micro, loss_micro
from mechanisms.testing import SeededSource

G = 2**64


def random_rows(inputs: int, outputs: int, micro: int, seed: int) -> list[list[Fraction]]:
    """Random rows whose largest ratio is below e^epsilon."""
    rng = random.Random(seed)
    bound = exp_micro(micro // 2)[0].limit_denominator(10**15)
    base = [Fraction(rng.randint(1, 50)) for _ in range(outputs)]
    rows = []
    for _ in range(inputs):
        row = [b * (bound if rng.random() < 0.4 else 1) for b in base]
        rows.append([entry / sum(row) for entry in row])
    return rows


def windows(points: int, width: int, micro: int) -> list[list[Fraction]]:
    """The rows of bipartite randomized response with windows at the edges shared."""
    high = exp_micro(micro)[0]
    rows = []
    for x in range(points):
        first = min(max(x - width // 2, 0), points - width)
        row = [high if first <= o < first + width else Fraction(1) for o in range(points)]
        rows.append([entry / sum(row) for entry in row])
    return rows


def drawn_law(chain: FiniteChain, x: int) -> dict[tuple[int, ...], Fraction]:
    """The law of ``draw``, from one word of every stretch of words that decide alike."""
    tables = [chain.strongest, *reversed(chain.steps)]
    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)

    def follow(symbol: int, path: tuple[int, ...], share: Fraction) -> None:
        if len(path) == len(tables):
            law[path[::-1]] += share
            return
        step = tables[len(path)]
        cuts = sorted({0, G, *boundaries(step, symbol)})
        for start, end in itertools.pairwise(cuts):
            out = step.apply(symbol, start)
            assert out == step.apply(symbol, end - 1)
            follow(out, (*path, out), share * Fraction(end - start, G))

    follow(x, (), Fraction(1))
    return dict(law)


def boundaries(step: FiniteDraw | SymbolDraw, symbol: int) -> list[int]:
    if isinstance(step, FiniteDraw):
        return list(itertools.accumulate(step.weights[symbol]))
    return [step.keep + k * step.other for k in range(step.size)]


def grains(row: list[Fraction]) -> tuple[int, ...]:
    below = [int(entry / sum(row) * G) for entry in row[1:]]
    return G - sum(below), *below


def mixed_steps(size: int, seed: int) -> list[FiniteDraw]:
    rng = random.Random(seed)
    rows = [[Fraction(rng.randint(0, 9) + 20 * (i == o)) for o in range(size)] for i in range(size)]
    return [FiniteDraw(tuple(grains(row) for row in rows))]


def chains() -> dict[str, FiniteChain]:
    found = {}
    for name, ladder in LADDERS.items():
        found[f"windows-{name}"] = finite_chain(
            rounded(windows(4, 2, ladder[-1]), ladder[-1]), ladder
        )
        strongest = rounded(random_rows(3, 4, ladder[-1], 7), ladder[-1])
        found[f"random-{name}"] = finite_chain(strongest, ladder)
    strongest = rounded(random_rows(4, 3, 2_000_000, 3), 2_000_000)
    found["general"] = finite_chain(strongest, (1_999_000, 2_000_000), mixed_steps(3, 1))
    return found


CHAINS = chains()


@pytest.mark.parametrize("name", CHAINS)
def test_words_are_drawn_by_the_law_and_channels_are_its_marginals(name: str) -> None:
    chain = CHAINS[name]
    for x in range(chain.inputs):
        law = chain_law(chain, x)
        assert sum(law.values()) == 1
        assert drawn_law(chain, x) == law
        for level in range(chain.levels):
            row = {(out,): p for out, p in enumerate(chain.channel(level).rows[x]) if p}
            assert level_law(law, level) == row


@pytest.mark.parametrize("micro", [1, 1000, 500_000, 3_000_000, 20_000_000, 40_000_000])
@pytest.mark.parametrize("size", [2, 3, 7, 33])
def test_rounding_never_exceeds_and_costs_little(micro: int, size: int) -> None:
    for width in {1, size // 2}:
        draw = rounded(windows(size, width, micro), micro)
        ratio = FiniteChain(draw).ratio(0)
        assert ratio <= exp_micro(micro)[0]
        if micro <= 20_000_000:
            assert loss_micro(ratio) == micro
        else:
            assert loss_micro(ratio) > micro - 150_000 * size


def test_rounding_keeps_equal_rows_equal_and_impossible_outputs_impossible() -> None:
    rows = windows(6, 3, 1_000_000)
    draw = rounded([[*row[:2], Fraction(0), *row[2:]] for row in rows], 1_000_000)
    assert draw.weights[0] == draw.weights[1]
    assert len(set(draw.weights)) == 4
    assert all(row[2] == 0 for row in draw.weights)
    words = np.array([0, 2**62, 2**63, G - 1], dtype=np.uint64)
    assert 2 not in {draw.apply(x, int(word)) for x in range(6) for word in words}


def test_rounding_refuses_rows_beyond_the_amount() -> None:
    with pytest.raises(ParameterError, match="exceed"):
        rounded(windows(4, 2, 1_001_000), 1_000_000)
    with pytest.raises(ParameterError, match="exceed"):
        rounded([[Fraction(1), Fraction(0)], [Fraction(1, 2), Fraction(1, 2)]], 1_000_000)
    with pytest.raises(ParameterError, match="distributions"):
        rounded([[Fraction(1, 2), Fraction(1, 3)]], 1_000_000)


@pytest.mark.parametrize("name", CHAINS)
def test_scalar_and_vectorised_draws_agree(name: str) -> None:
    chain = CHAINS[name]
    rng = np.random.default_rng(5)
    words = rng.integers(0, G, size=400, dtype=np.uint64)
    for step in (chain.strongest, *chain.steps):
        inputs = step.inputs if isinstance(step, FiniteDraw) else step.size
        cuts = {c + d for x in range(inputs) for c in boundaries(step, x) for d in (-1, 0, 1)}
        edges = np.array(sorted(c for c in cuts if 0 <= c < G), dtype=np.uint64)
        both = np.concatenate([words, edges])
        for xs in (rng.integers(0, inputs, size=len(both)), np.full(len(both), inputs - 1)):
            drawn = step.apply_many(xs, both)
            assert drawn.dtype == np.int64
            pairs = zip(xs.tolist(), both.tolist(), strict=True)
            assert drawn.tolist() == [step.apply(x, word) for x, word in pairs]


def test_outputs_without_weight_are_never_drawn() -> None:
    draw = FiniteDraw(((0, G, 0), (1, 0, G - 1), (0, 0, G), (G - 1, 1, 0)))
    words = np.array([0, 1, G - 2, G - 1], dtype=np.uint64)
    seen = [[draw.apply(x, int(word)) for word in words] for x in range(4)]
    assert seen == [[1, 1, 1, 1], [0, 2, 2, 2], [2, 2, 2, 2], [0, 0, 0, 1]]
    for x in range(4):
        assert draw.apply_many(np.full(4, x), words).tolist() == seen[x]


def test_default_steps_of_randomized_response_are_its_own() -> None:
    ladder = LADDERS["three"]
    known = symbol_chain(5, ladder)
    other = known.strongest.other
    rows = [[known.strongest.keep if x == o else other for o in range(5)] for x in range(5)]
    chain = finite_chain(FiniteDraw(tuple(map(tuple, rows))), ladder)
    assert chain.steps == known.steps
    assert chain.exact == known.exact


def test_unrelated_rungs_are_refused() -> None:
    strongest = rounded(windows(4, 2, 1_000_000), 1_000_000)
    with pytest.raises(UnrelatedLevelsError, match="level 1"):
        finite_chain(strongest, (1_500_000, 2_000_000))
    identity = FiniteDraw(tuple(tuple(G * (i == o) for o in range(4)) for i in range(4)))
    with pytest.raises(UnrelatedLevelsError, match="exceeds"):
        finite_chain(strongest, (500_000, 1_000_000), [identity])
    with pytest.raises(UnrelatedLevelsError, match="not below"):
        finite_chain(strongest, (1_000_000, 2_000_000), [identity])
    with pytest.raises(ParameterError, match="steps"):
        finite_chain(strongest, (500_000, 1_000_000), [])
    with pytest.raises(ParameterError, match="inputs and outputs"):
        finite_chain(strongest, (500_000, 1_000_000), [SymbolDraw(3, G - 2, 1)])
    with pytest.raises(ParameterError, match="certainty"):
        FiniteChain(identity).ratio(0)


@pytest.mark.parametrize("weights", [(), ((),), ((G, 1),), ((G, 0), (G,)), ((G + 1, -1),)])
def test_bad_weights_are_refused(weights: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ParameterError):
        FiniteDraw(weights)


def test_bad_symbols_and_levels_are_refused() -> None:
    chain = CHAINS["windows-three"]
    source = SeededSource(1)
    for symbol in (-1, 4):
        with pytest.raises(ParameterError):
            chain.draw(symbol, source)
        with pytest.raises(ParameterError):
            chain.weaker(symbol, source)
        with pytest.raises(ParameterError):
            chain.randomize(np.array([symbol]), source)


def test_a_matrix_is_worked_out_once_and_belongs_to_the_chain() -> None:
    """Every window that is estimated asks for all of them; of 65 points one takes 0.1 s."""
    chain = CHAINS["windows-three"]
    for level in range(3):
        assert chain.matrix(level) is chain.matrix(level)
        with pytest.raises(ValueError, match="read-only"):
            chain.matrix(level)[0, 0] = 1.0
    for level in (-1, 3):
        with pytest.raises(ParameterError, match="level"):
            chain.matrix(level)
