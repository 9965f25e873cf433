"""Finite chains: exact laws by enumeration, rounding that never exceeds, draws that agree."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.chains.finite import FiniteChain, FiniteDraw, finite_chain, rounded
from mechanisms.chains.symbols import SymbolDraw, symbol_chain
from mechanisms.chains.thresholds import to_grains
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import exp_micro, loss_micro
from mechanisms.testing import SeededSource
from tests.statistical import check_counts

G = 2**64
LADDERS = {
    "one": (1_000_000,),
    "three": (500_000, 1_000_000, 2_000_000),
    "wide": (1, 1_500_000, 9_000_000),
}


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


def step_rows(step: FiniteDraw | SymbolDraw) -> list[list[int]]:
    if isinstance(step, FiniteDraw):
        return [list(row) for row in step.weights]
    return [
        [step.keep if i == o else step.other for o in range(step.size)] for i in range(step.size)
    ]


def backward_law(chain: FiniteChain, x: int) -> dict[tuple[int, ...], Fraction]:
    """C_n times the steps, over all chains, weakest output first."""
    tables = [step_rows(step) for step in chain.steps]
    law = {}
    for path in itertools.product(range(chain.size), repeat=chain.levels):
        share = Fraction(chain.strongest.weights[x][path[-1]], G)
        for level, table in enumerate(tables):
            share *= Fraction(table[path[level + 1]][path[level]], G)
        if share:
            law[path] = share
    return law


def forward_law(chain: FiniteChain, x: int) -> dict[tuple[int, ...], Fraction]:
    """The weakest level from its channel, then every stronger one by the forward weights."""
    law = {(o,): p for o, p in enumerate(chain.channel(0).rows[x]) if p}
    for level in range(1, chain.levels):
        longer = {}
        for path, share in law.items():
            weights = chain.forward_weights([(x, 3)], path[-1], level)
            total = sum(weights.values())
            for out, weight in weights.items():
                if weight:
                    longer[(*path, out)] = share * Fraction(weight, total)
        law = longer
    return law


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


def mixed_steps(size: int, seed: int) -> list[FiniteDraw]:
    rng = random.Random(seed)
    rows = [[Fraction(rng.randint(0, 9) + 20 * (i == o)) for o in range(size)] for i in range(size)]
    return [FiniteDraw(tuple(to_grains([e / sum(row) for e in row]) for row in rows))]


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
def test_joint_law_is_the_product_of_channel_and_steps(name: str) -> None:
    chain = CHAINS[name]
    for x in range(chain.inputs):
        law = backward_law(chain, x)
        assert sum(law.values()) == 1
        assert drawn_law(chain, x) == law
        assert forward_law(chain, x) == law


@pytest.mark.parametrize("name", CHAINS)
def test_channels_are_the_marginals_and_certify_the_head_of_a_chain(name: str) -> None:
    chain = CHAINS[name]
    laws = [backward_law(chain, x) for x in range(chain.inputs)]
    for level in range(chain.levels):
        channel = chain.channel(level)
        for x, law in enumerate(laws):
            for out in range(chain.size):
                assert channel.rows[x][out] == sum(
                    p for path, p in law.items() if path[level] == out
                )
        assert chain.ratio(level) == channel.ratio()
        assert chain.exact[level].p in {entry for row in channel.rows for entry in row}
        heads = []
        for law in laws:
            head: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
            for path, share in law.items():
                head[path[: level + 1]] += share
            heads.append(head)
        worst = max(one[path] / two[path] for one in heads for two in heads for path in one)
        assert worst == chain.ratio(level)
        assert np.array_equal(
            chain.matrix(level), [[float(p) for p in row] for row in channel.rows]
        )


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
    for level in (0, 3):
        with pytest.raises(ParameterError, match="level"):
            chain.forward_weights([(0, 1)], 0, level)


def planted(chain: FiniteChain) -> FiniteChain:
    """The same chain with one probability of the strongest level five percent off."""
    first = list(chain.strongest.weights[0])
    moved = first[0] // 20
    first[0], first[1] = first[0] - moved, first[1] + moved
    return FiniteChain(FiniteDraw((tuple(first), *chain.strongest.weights[1:])), chain.steps)


def test_vectorised_chains_follow_the_law() -> None:
    chain, n, seed = CHAINS["windows-three"], 200_000, 11
    law = backward_law(chain, 0)
    paths = list(law)

    def counts(one: FiniteChain) -> list[int]:
        drawn = one.randomize(np.zeros(n, dtype=np.int64), SeededSource(seed))
        keys, found = np.unique(drawn, axis=0, return_counts=True)
        seen = dict(zip(map(tuple, keys.tolist()), found.tolist(), strict=True))
        return [seen.get(path, 0) for path in paths]

    probabilities = [float(law[path]) for path in paths]
    check_counts(counts(chain), probabilities, label=f"seed {seed}")
    with pytest.raises(AssertionError):
        check_counts(counts(planted(chain)), probabilities, label=f"planted, seed {seed}")


def test_the_largest_remainders_are_rounded_up() -> None:
    third, grains = Fraction(1, 3), 2**64
    assert to_grains([third, 2 * third]) == (grains // 3, grains - grains // 3)
    assert to_grains([2 * third, third]) == (grains - grains // 3, grains // 3)
