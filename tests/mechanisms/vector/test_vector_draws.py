"""Several answers a report: their law, what they cost, both directions, their bytes and coins."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from statistical import check_counts, check_same_law

from mechanisms.chains.finite import FiniteChain, FiniteDraw
from mechanisms.chains.symbols import SymbolChain
from mechanisms.channel import Channel, symbol_channel
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import loss_micro
from mechanisms.number.several import SeveralAnswers, coin, coin_column
from mechanisms.registry import build
from mechanisms.testing import SeededSource

SEED = 20241106
THREE = [500_000, 1_000_000, 2_000_000]
SPECS: dict[str, dict[str, Any]] = {
    "bits": {"name": "sampled_bits", "bits": 3, "count": 2, "missing": False},
    "bits-missing": {"name": "sampled_bits", "bits": 2, "count": 2, "missing": True},
    "thresholds": {"name": "sampled_vector", "dimensions": 3, "sampled": 2, "bits": 0},
    "vector-bits": {"name": "sampled_vector", "dimensions": 2, "sampled": 2, "bits": 3},
    "hybrid": {"name": "sampled_hybrid", "dimensions": 3, "sampled": 2, "points": 3},
    "one": {"name": "sampled_vector", "dimensions": 1, "sampled": 1, "bits": 0},
}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
Law = dict[tuple[int, ...], Fraction]


def ladder(spec: dict[str, Any], amounts: list[int] | None = None) -> SeveralAnswers:
    built = build(spec, amounts or THREE, "metric")
    assert isinstance(built, SeveralAnswers)
    return built


def ids(n: int, seed: int = SEED) -> NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, size=(n, 2), dtype=np.uint64)


def as_bytes(rows: NDArray[np.uint64]) -> list[bytes]:
    return [row.astype("<u8").tobytes() for row in rows]


def a_value(mechanism: SeveralAnswers, u: float = 0.6180339887) -> Any:
    if hasattr(mechanism, "dimensions"):
        return tuple((u + i / 3) % 1 for i in range(mechanism.dimensions))
    return u


def inputs(mechanism: SeveralAnswers) -> list[tuple[int, ...]]:
    """Every tuple of true answers; all of them can occur."""
    single = mechanism.chain.single
    number = single.inputs if isinstance(single, FiniteChain) else single.size
    return list(itertools.product(range(number), repeat=mechanism.answered))


def outputs_of(mechanism: SeveralAnswers) -> list[tuple[int, ...]]:
    return list(itertools.product(range(mechanism.chain.single.size), repeat=mechanism.answered))


def steps_of(single: SymbolChain | FiniteChain) -> list[Channel]:
    """What draws the strongest rung, then each weaker one, from the integer thresholds."""
    if isinstance(single, SymbolChain):
        draws = [single.strongest, *reversed(single.steps)]
        return [symbol_channel(single.size, *draw.pair) for draw in draws]
    return [
        Channel(tuple(tuple(Fraction(w, 2**64) for w in row) for row in draw.weights))
        if isinstance(draw, FiniteDraw)
        else symbol_channel(single.size, *draw.pair)
        for draw in [single.strongest, *reversed(single.steps)]
    ]


def level_law(mechanism: SeveralAnswers, answers: tuple[int, ...], level: int) -> Law:
    """The exact law of the outputs of a rung, from its exact probabilities."""
    rows = mechanism.chain.single.channel(level).rows
    law: Law = {}
    for outputs in outputs_of(mechanism):
        law[outputs] = math.prod(
            rows[answer][output] for answer, output in zip(answers, outputs, strict=True)
        )
    return law


def joint_law(
    mechanism: SeveralAnswers, answers: tuple[int, ...]
) -> dict[tuple[int, ...], Fraction]:
    """The law of a whole chain of packed outputs, weakest first, from its thresholds."""
    single = mechanism.chain.single
    steps = steps_of(single)
    laws: list[Law] = []
    for answer in answers:
        law: Law = defaultdict(Fraction)
        for path in itertools.product(range(single.size), repeat=len(steps)):
            share, before = Fraction(1), answer
            for step, out in zip(steps, path, strict=True):
                share *= step.rows[before][out]
                before = out
            law[path[::-1]] += share
        laws.append(law)
    joint: Law = defaultdict(Fraction)
    for paths in itertools.product(*(law.items() for law in laws)):
        share = Fraction(1)
        for _, part in paths:
            share *= part
        outputs = zip(*(path for path, _ in paths), strict=True)
        joint[tuple(mechanism.chain.pack(level) for level in outputs)] += share
    return dict(joint)


def worst_ratio(laws: list[Law]) -> Fraction:
    """The largest likelihood ratio of outputs that are possible at all."""
    columns = [[law[out] for law in laws] for out in laws[0]]
    return max(max(column) / min(column) for column in columns if any(column))


@every_spec
def test_a_report_costs_exactly_the_product_of_its_answers(spec: dict[str, Any]) -> None:
    mechanism = ladder(spec)
    for level in range(mechanism.levels):
        laws = [level_law(mechanism, answers, level) for answers in inputs(mechanism)]
        assert all(sum(law.values()) == 1 for law in laws)
        worst = worst_ratio(laws)
        [rung] = mechanism.exact(level)
        assert worst == (rung.p / rung.q) ** mechanism.answered
        assert mechanism.certified(level) == loss_micro(worst)
        assert THREE[level] - 2 <= mechanism.certified(level) <= THREE[level]


@every_spec
def test_a_whole_chain_costs_its_strongest_rung(spec: dict[str, Any]) -> None:
    mechanism = ladder(spec, THREE[:2])
    laws = [joint_law(mechanism, answers) for answers in inputs(mechanism)]
    worst = worst_ratio(laws)
    assert loss_micro(worst) == mechanism.certified(1)


@pytest.mark.slow
@every_spec
def test_scalar_vectorised_and_forward_draws_have_one_law(spec: dict[str, Any]) -> None:
    mechanism, n = ladder(spec), 6_000
    value, identifiers = a_value(mechanism), np.repeat(ids(1), n, axis=0)
    identifier = as_bytes(identifiers[:1])[0]
    many = mechanism.randomize([value] * n, identifiers, identifiers, SeededSource(SEED))
    assert many.shape == (n, mechanism.levels, mechanism.payload_width)
    vectorised = Counter(tuple(bytes(payload) for payload in rows) for rows in many)
    source = SeededSource(SEED + 1)
    scalar: Counter[tuple[bytes, ...]] = Counter()
    forward: Counter[tuple[bytes, ...]] = Counter()
    again: Counter[tuple[bytes, ...]] = Counter()
    for _ in range(n):
        payloads = mechanism.draw(value, identifier, identifier, source)
        scalar[payloads] += 1
        again[*mechanism.weaker(payloads[-1], source), payloads[-1]] += 1
        chain = [payloads[0]]
        for level in range(1, mechanism.levels):
            chain.append(mechanism.forward(value, chain[-1], level, identifier, identifier, source))
        forward[tuple(chain)] += 1
    keys = sorted({*vectorised, *scalar, *forward, *again})
    for other in (vectorised, forward, again):
        check_same_law(
            [scalar[key] for key in keys], [other[key] for key in keys], label=f"seed {SEED}"
        )
    with pytest.raises(AssertionError, match="off"):
        check_same_law([scalar[key] for key in keys], [scalar[keys[0]] for _ in keys])


def test_a_chain_of_known_answers_has_the_exact_law() -> None:
    mechanism, n = ladder(SPECS["bits-missing"]), 20_000
    law = joint_law(mechanism, (2, 2))
    source, identifier = SeededSource(SEED), bytes(16)
    counts = Counter(
        tuple(
            int.from_bytes(payload, "little")
            for payload in mechanism.draw(None, identifier, identifier, source)
        )
        for _ in range(n)
    )
    assert set(counts) <= set(law)
    check_counts([counts[key] for key in law], list(law.values()), label=f"seed {SEED}")


@every_spec
def test_a_mixed_prior_is_that_of_independent_answers(spec: dict[str, Any]) -> None:
    """The posterior of the packed prior is the product of those of the answers."""
    mechanism = ladder(spec)
    identifier = bytes(range(16))
    value, seed = a_value(mechanism), mechanism.seed(identifier)
    prior = mechanism.prior(value, identifier, identifier)
    rows = mechanism.chain.single.channel(1).rows
    for outputs in outputs_of(mechanism):
        packed = mechanism.chain.pack(outputs)
        joint = mechanism.chain.posterior_weights(prior, packed, 1)
        single = [
            {x: w * rows[x][out] for x, w in answer}
            for answer, out in zip(mechanism.priors(value, seed), outputs, strict=True)
        ]
        expected = {
            mechanism.chain.pack(answers): math.prod(
                weights[x] for weights, x in zip(single, answers, strict=True)
            )
            for answers in itertools.product(*single)
        }
        total, norm = sum(joint.values()), sum(expected.values())
        if not total:
            assert not norm
            continue
        assert {key: Fraction(w, total) for key, w in joint.items()} == {
            key: w / norm for key, w in expected.items()
        }


def test_a_mixed_prior_draws_forward() -> None:
    mechanism = ladder(SPECS["vector-bits"])
    prior = mechanism.prior((0.3, 0.9), bytes(16), bytes(16))
    drawn = mechanism.chain.forward(prior, 0, 1, SeededSource(SEED))
    assert 0 <= drawn < 4


@given(st.integers(1, 3), st.data())
def test_packing_gives_back_the_symbols(size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 20))
    spec = {"name": "sampled_bits", "bits": 4, "count": count, "missing": size == 3}
    mechanism = ladder(spec, [1_000_000])
    symbols = data.draw(
        st.lists(st.integers(0, mechanism.chain.single.size - 1), min_size=count, max_size=count)
    )
    packed = mechanism.chain.pack(symbols)
    assert mechanism.chain.unpack(packed) == symbols
    payload = np.frombuffer(packed.to_bytes(mechanism.payload_width, "little"), dtype=np.uint8)
    assert mechanism.valid(payload[None]).all()
    assert mechanism.chain.symbols(payload[None]).tolist() == [symbols]


@every_spec
def test_valid_payloads_are_those_that_are_drawn(spec: dict[str, Any]) -> None:
    mechanism = ladder(spec)
    payloads = np.arange(256, dtype=np.uint8)[:, None]
    possible = {mechanism.chain.pack(outputs) for outputs in outputs_of(mechanism)}
    assert set(np.flatnonzero(mechanism.valid(payloads))) == possible
    for value in range(256):
        payload, arguments = bytes([value]), (a_value(mechanism), bytes(16), bytes(16))
        if value in possible:
            assert len(mechanism.weaker(payload, SeededSource(1))) == 2
            continue
        with pytest.raises(ParameterError, match="none of this mechanism"):
            mechanism.weaker(payload, SeededSource(1))
        with pytest.raises(ParameterError, match="none of this mechanism"):
            mechanism.forward(arguments[0], payload, 1, *arguments[1:], SeededSource(1))


@every_spec
def test_scalar_and_vectorised_coins_agree(spec: dict[str, Any]) -> None:
    mechanism, n = ladder(spec), 200
    chains = ids(n)
    seeds = mechanism.seeds(chains)
    scalar = [mechanism.seed(chain) for chain in as_bytes(chains)]
    assert seeds.tolist() == scalar
    for index in (0, 1, 7):
        assert coin_column(seeds, index).tolist() == [coin(seed, index) for seed in scalar]
    if hasattr(mechanism, "dimensions"):
        chosen = [mechanism.coordinates(seed) for seed in scalar]
        assert mechanism.coordinates_many(seeds).tolist() == chosen
        assert all(len(set(coordinates)) == mechanism.sampled for coordinates in chosen)
    if hasattr(mechanism, "exponents"):
        bits = [[mechanism.bits - 1 - e for e in mechanism.exponents(seed)] for seed in scalar]
        assert mechanism.places(seeds).tolist() == bits


@every_spec
def test_true_answers_agree_and_are_counted_where_they_belong(spec: dict[str, Any]) -> None:
    """At corners nothing is rounded: a coordinate of 1 is above, all its bits are set."""
    mechanism, n = ladder(spec), 60
    chains, groups = ids(n), np.arange(n) % 3
    seeds, source = mechanism.seeds(chains), SeededSource(SEED)
    corner: list[Any] = [i % 2 for i in range(n)]
    if hasattr(mechanism, "dimensions"):
        corner = [tuple((i + j) % 2 for j in range(mechanism.dimensions)) for i in range(n)]
    answers = mechanism.true_answers_many(corner, seeds, source)
    scalar = [mechanism.true_answers(u, int(s), source) for u, s in zip(corner, seeds, strict=True)]
    assert answers.tolist() == scalar
    packed = [mechanism.chain.pack(row) for row in scalar]
    payloads = np.array(packed, dtype=np.uint8)[:, None]
    counts = mechanism.accumulate(payloads, chains, chains, groups, 3)
    assert counts.shape == (3, mechanism.count_length)
    cells = mechanism.places(seeds) * mechanism.chain.cells + answers
    expected = np.zeros((3, mechanism.count_length), dtype=np.int64)
    for group, row in zip(groups, cells, strict=True):
        for cell in row:
            expected[group, cell] += 1
    assert (counts == expected).all()
    if hasattr(mechanism, "dimensions"):
        top = mechanism.grid.shape.steps if hasattr(mechanism, "grid") else 1
        for i, (seed, row) in enumerate(zip(seeds, scalar, strict=True)):
            assert row == [top * corner[i][j] for j in mechanism.coordinates(int(seed))]


def test_every_set_of_coordinates_is_as_likely() -> None:
    spec = {"name": "sampled_vector", "dimensions": 5, "sampled": 3, "bits": 0}
    mechanism = ladder(spec)
    chosen = mechanism.coordinates_many(mechanism.seeds(ids(40_000)))
    sets = Counter(tuple(sorted(row)) for row in chosen.tolist())
    every = list(itertools.combinations(range(5), 3))
    check_counts([sets[one] for one in every], [Fraction(1, 10)] * 10, label=f"seed {SEED}")
    # What is asked of a coordinate has nothing to do with which one it is.
    bins = mechanism.slots_of(mechanism.seeds(ids(40_000)))
    check_counts(np.bincount(bins[:, 1], minlength=16), [Fraction(1, 16)] * 16)
    both = np.bincount((chosen[:, 0] * 16 + bins[:, 0]), minlength=48)
    check_counts(both, np.repeat(np.bincount(chosen[:, 0], minlength=3) / len(chosen) / 16, 16))


@pytest.mark.parametrize(
    ("spec", "amounts", "message"),
    [
        ({"name": "sampled_bits", "bits": 0, "count": 1, "missing": False}, THREE, "bits must"),
        ({"name": "sampled_bits", "bits": 4, "count": 0, "missing": False}, THREE, "count must"),
        ({"name": "sampled_bits", "bits": 4, "count": 33, "missing": False}, THREE, "count must"),
        (SPECS["bits"], [80_000_001], "level 1"),
        (SPECS["bits"], [2, 1], "increase"),
        ({**SPECS["thresholds"], "dimensions": 0}, THREE, "dimensions must"),
        ({**SPECS["thresholds"], "dimensions": 1025}, THREE, "dimensions must"),
        ({**SPECS["thresholds"], "sampled": 4}, THREE, "sampled must"),
        ({**SPECS["thresholds"], "sampled": 0}, THREE, "sampled must"),
        ({**SPECS["thresholds"], "bits": 33}, THREE, "bits must"),
        ({**SPECS["thresholds"], "bits": -1}, THREE, "bits must"),
        ({**SPECS["hybrid"], "sampled": 4}, THREE, "sampled must"),
        ({**SPECS["hybrid"], "points": 4}, THREE, "points must"),
    ],
)
def test_bad_parameters_are_refused(spec: dict[str, Any], amounts: list[int], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ladder(spec, amounts)


def test_rungs_that_64_bits_cannot_tell_apart_are_refused() -> None:
    spec = {"name": "sampled_bits", "bits": 4, "count": 2, "missing": False}
    assert ladder(spec, [1, 2, 80_000_000]).certified(2) <= 80_000_000
    with pytest.raises(UnrelatedLevelsError, match="level 1"):
        ladder(spec, [79_999_999, 80_000_000])


@pytest.mark.parametrize(
    "value", [(0.5,), (0.5, 0.5, 0.5, 0.5), (0.5, 0.5, 1.01), (0.5, 0.5, float("nan")), 0.5, None]
)
def test_what_is_no_vector_is_refused(value: Any) -> None:
    mechanism, chain = ladder(SPECS["thresholds"]), bytes(16)
    with pytest.raises(ParameterError) as caught:
        mechanism.draw(value, chain, chain, SeededSource(1))
    assert "1.01" not in str(caught.value)
    with pytest.raises((ParameterError, TypeError)):
        mechanism.randomize([value], ids(1), ids(1), SeededSource(1))


def test_columns_of_different_lengths_are_refused() -> None:
    mechanism = ladder(SPECS["thresholds"])
    values = np.full((4, 3), 0.5)
    for n, m in ((3, 4), (4, 5)):
        with pytest.raises(ParameterError, match="as many ids"):
            mechanism.randomize(values, ids(n), ids(m), SeededSource(1))
    assert mechanism.randomize(values[:0], ids(0), ids(0), SeededSource(1)).shape == (0, 3, 1)
    bits = ladder(SPECS["bits"])
    with pytest.raises(ParameterError, match="one-dimensional"):
        bits.randomize(values, ids(4), ids(4), SeededSource(1))
