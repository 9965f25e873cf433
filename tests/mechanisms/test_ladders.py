"""The contract of every ladder: payloads, scalar and vectorised draws, counts, refusals."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import CASES, Case, chain_law, encodings, prior_of
from statistical import check_counts, check_same_law

from mechanisms import coins
from mechanisms.base import Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.subsets import SubsetChain
from mechanisms.errors import ParameterError, SottoError, UnrelatedRungsError
from mechanisms.registry import build
from mechanisms.testing import SeededSource

SEED = 2718281828
#: A value of the wrong kind that would be recognised in a message.
SECRET = 123_456_789

#: Besides the small ones: payloads of every width, filters of whole and broken bytes and lanes.
LARGE = {
    "grr-u8": Case({"name": "grr", "domain_size": 256}, (500_000, 2_000_000)),
    "grr-u16": Case({"name": "grr", "domain_size": 257}, (500_000, 2_000_000)),
    "grr-u32": Case({"name": "grr", "domain_size": 65_537}, (500_000, 2_000_000)),
    "hashing-1000": Case(
        {"name": "local_hashing", "domain_size": 1000, "buckets": 7}, (500_000, 2_000_000)
    ),
    "hashing-u16": Case(
        {"name": "local_hashing", "domain_size": 200, "buckets": 257}, (500_000, 5_000_000)
    ),
    "subset-100": Case(
        {"name": "subset", "domain_size": 100, "subset_size": 27}, (500_000, 1_000_000)
    ),
    "hadamard-1000": Case(
        {"name": "hadamard", "domain_size": 1000, "blocks": 8}, (500_000, 2_000_000)
    ),
    "sue-64": Case({"name": "sue", "domain_size": 64}, (500_000, 2_000_000)),
    "oue-65": Case({"name": "oue", "domain_size": 65}, (500_000, 2_000_000)),
    "brr-u16": Case(
        {"name": "brr", "domain_size": 300, "subset_size": 87, "missing": True},
        (500_000, 1_000_000),
    ),
    "rappor-128": Case(
        {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}, (500_000, 1_000_000, 2_000_000)
    ),
    "sampled-32": Case({"name": "sampled_bit", "bits": 32, "missing": True}, (1_000_000,)),
    "split-32": Case({"name": "split_bits", "bits": 32, "missing": True}, (500_000, 2_000_000)),
    "eight": Case({"name": "grr", "domain_size": 5}, tuple(range(250_000, 2_000_001, 250_000))),
}
EVERY = {**CASES, **LARGE}
every_case = pytest.mark.parametrize("case", EVERY.values(), ids=EVERY.keys())
three_rungs = pytest.mark.parametrize(
    "case",
    [case for name, case in CASES.items() if name.endswith("three")],
    ids=[name for name in CASES if name.endswith("three")],
)


def ids(n: int, seed: int = SEED) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, size=(n, 2), dtype=np.uint64)


def as_bytes(rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in rows.astype("<u8")]


def values(mechanism: Mechanism, n: int) -> tuple[list[Any], Any]:
    """Some values: as scalars, and as what ``randomize`` takes."""
    generator = np.random.default_rng(SEED)
    if mechanism.name == "rappor":
        strings = [f"string {number % 7}".encode() for number in range(n)]
        return strings, strings
    if hasattr(mechanism, "domain_size"):
        symbols = generator.integers(0, mechanism.domain_size, size=n)
        return symbols.tolist(), symbols
    numbers = generator.random(n)
    numbers[: min(n, 2)] = (0.0, 1.0)[:n]
    if mechanism.missing:
        numbers[2::5] = np.nan
    return [None if math.isnan(u) else u for u in numbers.tolist()], numbers


@every_case
def test_payloads(case: Case) -> None:
    """Width, type, validity, spare bits: alike in both ways of drawing; inputs are untouched."""
    mechanism, n = case.build(), 200
    scalars, vector = values(mechanism, n)
    chains, pseudonyms = ids(n), ids(n, SEED + 1)
    before = copy.deepcopy((vector, chains, pseudonyms))
    drawn = mechanism.randomize(vector, chains, pseudonyms, SeededSource(SEED))
    assert drawn.shape == (n, mechanism.levels, mechanism.payload_width)
    assert drawn.dtype == np.uint8
    for have, want in zip((vector, chains, pseudonyms), before, strict=True):
        np.testing.assert_array_equal(have, want)
    source = SeededSource(SEED)
    for symbol, chain, pseudonym in zip(
        scalars, as_bytes(chains), as_bytes(pseudonyms), strict=True
    ):
        payloads = mechanism.draw(symbol, chain, pseudonym, source)
        assert len(payloads) == mechanism.levels
        rows = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(mechanism.levels, -1)
        assert rows.shape[1] == mechanism.payload_width
        assert mechanism.valid(rows).all()
    for level in range(mechanism.levels):
        assert mechanism.valid(drawn[:, level]).all()


@every_case
def test_equal_seeds_give_equal_draws(case: Case) -> None:
    mechanism = case.build()
    scalars, vector = values(mechanism, 20)
    chains = ids(20)
    one, two = (mechanism.randomize(vector, chains, chains, SeededSource(3)) for _ in range(2))
    assert (one == two).all()
    chain = as_bytes(chains)[0]
    draws = {mechanism.draw(scalars[0], chain, chain, SeededSource(3)) for _ in range(2)}
    assert len(draws) == 1


@every_case
def test_no_values_no_reports(case: Case) -> None:
    mechanism = case.build()
    nothing = [] if mechanism.name == "rappor" else np.array([])
    drawn = mechanism.randomize(nothing, ids(0), ids(0), SeededSource(SEED))
    assert drawn.shape == (0, mechanism.levels, mechanism.payload_width)
    assert mechanism.valid(drawn[:, 0]).shape == (0,)
    counts = mechanism.accumulate(drawn[:, 0], ids(0), ids(0), np.zeros(0, np.int64), 2)
    assert counts.shape == (2, mechanism.count_length)
    assert not counts.any()


def outcomes(payloads: np.ndarray) -> list[int]:
    """The outputs of a chain, ``(levels, width)``, as integers."""
    return [int.from_bytes(row.tobytes(), "little") for row in payloads]


def encoded(mechanism: Mechanism, symbol: Any, identifier: bytes) -> int:
    """What a value becomes, for one that is not rounded at random."""
    prior = prior_of(mechanism, symbol, identifier)
    return next(bits for bits, weight in prior if weight)


def fixed_symbol(mechanism: Mechanism) -> Any:
    """A value that becomes the same in every run: a grid point."""
    if mechanism.name == "rappor":
        return b"a string"
    return 1 if hasattr(mechanism, "domain_size") else 1.0


@three_rungs
def test_scalar_and_vectorised_draws_have_the_exact_law(case: Case) -> None:
    """The joint law of all three rungs, of one value, against the enumeration."""
    mechanism, n = case.build(), 20_000
    symbol, identifiers = fixed_symbol(mechanism), np.repeat(ids(1), n, axis=0)
    identifier = as_bytes(identifiers[:1])[0]
    law = chain_law(mechanism.chain, encoded(mechanism, symbol, identifier))
    vector = [symbol] * n if mechanism.name == "rappor" else np.full(n, symbol)
    drawn = mechanism.randomize(vector, identifiers, identifiers, SeededSource(SEED))
    many = Counter(tuple(outcomes(rows)) for rows in drawn)
    source = SeededSource(SEED + 1)
    scalar: Counter[tuple[int, ...]] = Counter()
    for _ in range(n):
        payloads = mechanism.draw(symbol, identifier, identifier, source)
        scalar[tuple(int.from_bytes(payload, "little") for payload in payloads)] += 1
    for counts in (many, scalar):
        assert set(counts) <= set(law)
        check_counts([counts[outputs] for outputs in law], list(law.values()), label=f"seed {SEED}")


@three_rungs
def test_forward_draws_have_the_exact_law(case: Case) -> None:
    mechanism, n = case.build(), 4_000
    symbol, identifier = fixed_symbol(mechanism), as_bytes(ids(1))[0]
    law = chain_law(mechanism.chain, encoded(mechanism, symbol, identifier))
    source = SeededSource(SEED)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(n):
        payloads = [mechanism.draw(symbol, identifier, identifier, source)[0]]
        for level in range(1, mechanism.levels):
            payloads.append(
                mechanism.forward(symbol, payloads[-1], level, identifier, identifier, source)
            )
        counts[tuple(int.from_bytes(payload, "little") for payload in payloads)] += 1
    check_counts([counts[outputs] for outputs in law], list(law.values()), label=f"seed {SEED}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sampled", "split", "split-missing"])
def test_values_between_grid_points(name: str) -> None:
    """Scalar, vectorised and forward draws agree where the value is rounded at random."""
    mechanism, n = CASES[f"{name}-three"].build(), 6_000
    u, identifiers = 0.6180339887, np.repeat(ids(1), n, axis=0)
    identifier = as_bytes(identifiers[:1])[0]
    drawn = mechanism.randomize(np.full(n, u), identifiers, identifiers, SeededSource(SEED))
    many = Counter(tuple(outcomes(rows)) for rows in drawn)
    source = SeededSource(SEED + 1)
    scalar: Counter[tuple[int, ...]] = Counter()
    forward: Counter[tuple[int, ...]] = Counter()
    for _ in range(n):
        payloads = mechanism.draw(u, identifier, identifier, source)
        scalar[tuple(int.from_bytes(payload, "little") for payload in payloads)] += 1
        chain = [payloads[0]]
        for level in range(1, mechanism.levels):
            chain.append(mechanism.forward(u, chain[-1], level, identifier, identifier, source))
        forward[tuple(int.from_bytes(payload, "little") for payload in chain)] += 1
    keys = sorted({*many, *scalar, *forward})
    for other in (scalar, forward):
        check_same_law(
            [many[key] for key in keys], [other[key] for key in keys], label=f"seed {SEED}"
        )


def test_a_weaker_rung_drawn_without_the_stronger_one_would_be_caught() -> None:
    """Marginals alone do not show it: the joint law does."""
    mechanism, n = CASES["grr5-three"].build(), 20_000
    law = chain_law(mechanism.chain, 1)
    one = mechanism.randomize(np.full(n, 1), ids(n), ids(n), SeededSource(SEED))
    two = mechanism.randomize(np.full(n, 1), ids(n), ids(n), SeededSource(SEED + 1))
    mixed = np.concatenate([one[:, :1], two[:, 1:]], axis=1)
    counts = Counter(tuple(outcomes(rows)) for rows in mixed)
    with pytest.raises(AssertionError):
        check_counts([counts[outputs] for outputs in law], list(law.values()))


@every_case
def test_counts_are_those_of_a_person_who_counts(case: Case) -> None:
    mechanism, n, n_groups = case.build(), 300, 4
    _, vector = values(mechanism, n)
    chains, pseudonyms = ids(n), ids(n, SEED + 1)
    payloads = mechanism.randomize(vector, chains, pseudonyms, SeededSource(SEED))[:, -1]
    groups = np.random.default_rng(SEED).integers(0, n_groups, size=n)
    counts = mechanism.accumulate(payloads, chains, pseudonyms, groups, n_groups)
    assert counts.shape == (n_groups, mechanism.count_length)
    assert counts.dtype == np.int64
    expected = np.zeros((n_groups, mechanism.count_length), dtype=np.int64)
    for payload, chain, pseudonym, group in zip(
        payloads, as_bytes(chains), as_bytes(pseudonyms), groups, strict=True
    ):
        for place in places(
            mechanism, int.from_bytes(payload.tobytes(), "little"), chain, pseudonym
        ):
            expected[group, place] += 1
    np.testing.assert_array_equal(counts, expected)


def places(mechanism: Mechanism, output: int, chain: bytes, pseudonym: bytes) -> list[int]:
    """Where a report is counted, from the layout's description."""
    coin = coins.hash_id(chain, coins.coin_domain("metric"))
    if mechanism.name in ("grr", "hadamard", "brr"):
        return [output]
    if mechanism.name == "local_hashing":
        return [coin % mechanism.hashes * mechanism.buckets + output]
    if mechanism.name == "threshold":
        return [(coin >> 58) * (2 + mechanism.missing) + output]
    if mechanism.name == "sampled_bit":
        exponent = (1 + coin % (2**mechanism.bits - 1)).bit_length() - 1
        return [(mechanism.bits - 1 - exponent) * (2 + mechanism.missing) + output]
    width, start = mechanism.chain.width, 0
    if mechanism.name == "rappor":
        cohort = coins.hash_id(pseudonym, coins.cohort_domain("metric")) % mechanism.cohorts
        start = cohort * (width + 1)
    return [start + index for index in range(width) if output >> index & 1] + [start + width]


@given(st.data())
@settings(max_examples=30)
def test_counts_add_up(data: st.DataObject) -> None:
    """However the rows are cut; a chain of retractions undoes what was counted."""
    case = data.draw(st.sampled_from(list(CASES.values())))
    mechanism, n = case.build(), data.draw(st.integers(1, 60))
    _, vector = values(mechanism, n)
    chains = ids(n)
    payloads = mechanism.randomize(vector, chains, chains, SeededSource(SEED))[:, 0]
    groups = np.arange(n) % 3
    cut = data.draw(st.integers(0, n))
    whole = mechanism.accumulate(payloads, chains, chains, groups, 3)
    parts = [
        mechanism.accumulate(payloads[part], chains[part], chains[part], groups[part], 3)
        for part in (slice(0, cut), slice(cut, n))
    ]
    np.testing.assert_array_equal(whole, parts[0] + parts[1])


@every_case
def test_what_is_no_output_is_not_valid(case: Case) -> None:
    mechanism = case.build()
    limit = (
        1 << mechanism.chain.width
        if isinstance(mechanism.chain, BitChain | SubsetChain)
        else mechanism.chain.size
    )
    room = 1 << (8 * mechanism.payload_width)
    outputs = sorted({0, limit - 1, *(x for x in (limit, room - 1) if x < room)})
    rows = np.frombuffer(
        b"".join(x.to_bytes(mechanism.payload_width, "little") for x in outputs), dtype=np.uint8
    ).reshape(len(outputs), -1)
    subset = mechanism.chain.k if isinstance(mechanism.chain, SubsetChain) else None
    assert mechanism.valid(rows).tolist() == [
        x < limit and subset in (None, x.bit_count()) for x in outputs
    ]
    if limit < room and mechanism.levels > 1:
        with pytest.raises(ParameterError, match="the payload is none of this mechanism"):
            mechanism.weaker(rows[-1].tobytes(), SeededSource(1))
        with pytest.raises(ParameterError, match="the payload is none of this mechanism"):
            mechanism.forward(
                fixed_symbol(mechanism),
                rows[-1].tobytes(),
                1,
                bytes(16),
                bytes(16),
                SeededSource(1),
            )


@every_case
def test_values_of_the_wrong_kind_are_refused_and_never_shown(case: Case) -> None:
    mechanism = case.build()
    wrong: list[Any]
    if mechanism.name == "rappor":
        return
    if hasattr(mechanism, "domain_size"):
        wrong = [-1, mechanism.domain_size, SECRET, 0.5, math.nan]
    else:
        wrong = [-0.015625, SECRET, math.nan, math.inf]
        if not mechanism.missing:
            wrong.append(None)
    for value in wrong:
        for attempt in attempts(mechanism, value):
            with pytest.raises(ParameterError) as caught:
                attempt()
            assert str(SECRET) not in str(caught.value)


def test_only_what_follows_a_rung_is_drawn_forward() -> None:
    mechanism = CASES["grr5-three"].build()
    for level in (-1, 0, 3):
        with pytest.raises(ParameterError, match=r"level must lie in \[1, 3\)"):
            mechanism.forward(1, b"\0", level, bytes(16), bytes(16), SeededSource(SEED))


def attempts(mechanism: Mechanism, value: Any) -> list[Callable[[], object]]:
    source, chain = SeededSource(SEED), bytes(16)
    calls: list[Callable[[], object]] = [lambda: mechanism.draw(value, chain, chain, source)]
    if mechanism.levels > 1:
        chain_, pseudonym = bytes(16), bytes(16)
        previous = mechanism.draw(fixed_symbol(mechanism), chain_, pseudonym, source)[0]
        calls.append(lambda: mechanism.forward(value, previous, 1, chain, chain, source))
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    if not (missing and getattr(mechanism, "missing", False)):
        many = np.array([math.nan if value is None else value])
        calls.append(lambda: mechanism.randomize(many, ids(1), ids(1), source))
    return calls


@every_case
def test_a_ladder_is_immutable_and_equal_to_its_twin(case: Case) -> None:
    mechanism = case.build()
    assert mechanism == case.build()
    assert hash(mechanism) == hash(case.build())
    with pytest.raises(FrozenInstanceError):
        mechanism.metric = "other"  # type: ignore[misc]


def test_coins_of_different_metrics_differ() -> None:
    spec: dict[str, object] = {"name": "threshold", "missing": False}
    one, other = (build(spec, [1_000_000], metric) for metric in ("one", "other"))
    assert (one.bins(ids(100)) != other.bins(ids(100))).any()


def test_strings_of_a_cohort_share_a_filter_and_those_of_others_do_not() -> None:
    mechanism = build(
        {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}, [1_000_000], "metric"
    )
    pseudonyms = ids(200)
    filters: dict[int, set[int]] = {}
    for pseudonym, cohort in zip(
        as_bytes(pseudonyms), mechanism.slots_of(pseudonyms).tolist(), strict=True
    ):
        assert mechanism.cohort(pseudonym) == cohort
        filters.setdefault(cohort, set()).add(encoded(mechanism, b"a string", pseudonym))
    assert set(filters) == set(range(16))
    assert all(len(known) == 1 for known in filters.values())
    assert len(set.union(*filters.values())) > 10


GRR: dict[str, object] = {"name": "grr", "domain_size": 5}
RAPPOR: dict[str, object] = {"name": "rappor", "bits": 8, "hashes": 2, "cohorts": 1}


@pytest.mark.parametrize(
    ("spec", "ladder", "message"),
    [
        ({}, [1], "mechanism must be one of grr, sue"),
        ({"name": "f-rr"}, [1], "not 'f-rr'"),
        ({"name": ["grr"]}, [1], "mechanism must be one of"),
        ({"name": "grr"}, [1], "domain_size must be of type int, not None"),
        ({"name": "grr", "domain_size": True}, [1], "domain_size must be of type int"),
        ({"name": "grr", "domain_size": 2.0}, [1], "domain_size must be of type int"),
        ({"name": "grr", "domain_size": math.nan}, [1], "domain_size must be of type int"),
        ({**GRR, "bits": 3, "a": 1}, [1], "takes domain_size, not a, bits"),
        ({"name": "grr", "domain_size": 1}, [1], r"domain_size must lie in \[2, 1048576\], not 1"),
        ({"name": "grr", "domain_size": 2**20 + 1}, [1], "domain_size must lie in"),
        ({"name": "oue", "domain_size": 2**16 + 1}, [1], r"domain_size must lie in \[2, 65536\]"),
        ({"name": "threshold"}, [1], "missing must be of type bool"),
        ({"name": "sampled_bit", "bits": 33, "missing": True}, [1], r"bits must lie in \[1, 32\]"),
        ({"name": "split_bits", "bits": 0, "missing": True}, [1], r"bits must lie in \[1, 32\]"),
        ({**RAPPOR, "bits": 0}, [1], "bits must lie in"),
        ({**RAPPOR, "hashes": 9}, [1], r"hashes must lie in \[1, 8\], not 9"),
        ({**RAPPOR, "cohorts": 0}, [1], "cohorts must lie in"),
        (GRR, [], "a ladder has 1 to 8 rungs, not 0"),
        (GRR, list(range(1, 10)), "a ladder has 1 to 8 rungs, not 9"),
        (GRR, [1, 1], "rung 2: epsilons must increase, 1 follows 1"),
        (GRR, [1, 3, 2], "rung 3: epsilons must increase"),
        (GRR, [0, 1], r"rung 1: micro-epsilon must lie in \[1, "),
        (GRR, [-5], "rung 1: micro-epsilon must lie in"),
        (GRR, [1, 40_000_001], "rung 2: micro-epsilon must lie in"),
        (GRR, [math.nan], "rung 1: micro-epsilon must be an int"),
        (GRR, [1.0], "rung 1: micro-epsilon must be an int"),
        (GRR, [True], "rung 1: micro-epsilon must be an int"),
    ],
)
def test_what_cannot_be_built_is_refused(
    spec: dict[str, object], ladder: list[int], message: str
) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        build(spec, ladder, "metric")
    assert isinstance(caught.value, SottoError)
    assert isinstance(caught.value, ValueError)


def test_a_metric_is_named_by_a_string() -> None:
    with pytest.raises(ParameterError, match="metric must be a string"):
        build(GRR, [1], None)  # type: ignore[arg-type]


SPECIFICATIONS = st.one_of(
    st.builds(lambda m: {"name": "grr", "domain_size": m}, st.integers(2, 2**20)),
    st.builds(
        lambda name, m: {"name": name, "domain_size": m},
        st.sampled_from(["sue", "oue"]),
        st.integers(2, 100),
    ),
    st.builds(
        lambda m, g: {"name": "local_hashing", "domain_size": m, "buckets": g},
        st.integers(2, 1000),
        st.sampled_from([2, 3, 5, 101]),
    ),
    st.integers(2, 1024).flatmap(
        lambda m: st.builds(
            lambda k: {"name": "subset", "domain_size": m, "subset_size": k},
            st.integers(1, m // 2),
        )
    ),
    st.builds(
        lambda m, b: {"name": "hadamard", "domain_size": 64 * m, "blocks": 2**b},
        st.integers(1, 2**14),
        st.integers(0, 6),
    ),
    st.integers(3, 60).flatmap(
        lambda m: st.builds(
            lambda k, missing: {
                "name": "brr",
                "domain_size": m,
                "subset_size": k,
                "missing": missing,
            },
            st.integers(1, m - 2),
            st.booleans(),
        )
    ),
    st.builds(
        lambda k, h, c: {"name": "rappor", "bits": k, "hashes": h, "cohorts": c},
        st.integers(1, 200),
        st.integers(1, 8),
        st.integers(1, 64),
    ),
    st.builds(lambda missing: {"name": "threshold", "missing": missing}, st.booleans()),
    st.builds(
        lambda name, bits, missing: {"name": name, "bits": bits, "missing": missing},
        st.sampled_from(["sampled_bit", "split_bits"]),
        st.integers(1, 32),
        st.booleans(),
    ),
)
AMOUNTS = st.one_of(st.integers(1, 100), st.integers(1, 10**7), st.integers(1, 4 * 10**7))


@given(SPECIFICATIONS, st.sets(AMOUNTS, min_size=1, max_size=8))
@settings(max_examples=150)
def test_every_ladder_that_is_accepted_is_honoured(
    spec: dict[str, object], amounts: set[int]
) -> None:
    ladder = sorted(amounts)
    try:
        mechanism = build(spec, ladder, "metric")
    except ParameterError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert refusal.startswith("rung ")
        return
    certified = [mechanism.certified(level) for level in range(mechanism.levels)]
    assert certified == sorted(set(certified))
    assert all(0 < have <= want for have, want in zip(certified, ladder, strict=True))


class TestLimits:
    """From one micro-epsilon to the largest amount that 64-bit thresholds honour."""

    LARGEST = (
        (GRR, 40),
        ({"name": "grr", "domain_size": 2**20}, 40),
        ({"name": "sue", "domain_size": 5}, 80),
        ({"name": "oue", "domain_size": 5}, 40),
        ({"name": "local_hashing", "domain_size": 2**20, "buckets": 3}, 40),
        ({"name": "subset", "domain_size": 1024, "subset_size": 1}, 40),
        ({"name": "subset", "domain_size": 1024, "subset_size": 512}, 40),
        ({"name": "hadamard", "domain_size": 2**20, "blocks": 1}, 40),
        ({"name": "hadamard", "domain_size": 2**20, "blocks": 2**20}, 40),
        ({"name": "brr", "domain_size": 9, "subset_size": 2, "missing": False}, 40),
        ({"name": "brr", "domain_size": 1024, "subset_size": 1, "missing": True}, 40),
        (RAPPOR, 160),
        ({"name": "rappor", "bits": 3, "hashes": 8, "cohorts": 1}, 120),
        ({"name": "threshold", "missing": True}, 40),
        ({"name": "sampled_bit", "bits": 32, "missing": False}, 40),
    )

    @pytest.mark.parametrize(("spec", "epsilon"), LARGEST)
    def test_the_largest_epsilon_is_nearly_reached(
        self, spec: dict[str, object], epsilon: int
    ) -> None:
        micro = epsilon * 1_000_000
        mechanism = build(spec, [1, 1_000_000, micro], "metric")
        assert micro * 0.999 <= mechanism.certified(2) <= micro
        assert mechanism.certified(1) in (999_999, 1_000_000)
        assert mechanism.certified(0) == 1
        with pytest.raises(ParameterError, match="thresholds of 64 bits"):
            build(spec, [micro + 1], "metric")

    @pytest.mark.parametrize(("spec", "epsilon"), LARGEST)
    def test_the_smallest_epsilons_are_kept_apart(
        self, spec: dict[str, object], epsilon: int
    ) -> None:
        mechanism = build(spec, [1, 2, 3, 10], "metric")
        assert [mechanism.certified(level) for level in range(4)] == [1, 2, 3, 10]

    def test_split_bits_end_where_their_first_bit_does(self) -> None:
        spec: dict[str, object] = {"name": "split_bits", "bits": 8, "missing": True}
        mechanism = build(spec, [1, 2, 250_000_000], "metric")
        assert [mechanism.certified(0), mechanism.certified(1)] == [1, 2]
        assert 249_000_000 < mechanism.certified(2) <= 250_000_000
        with pytest.raises(ParameterError, match="rung 2: the most significant bit"):
            build(spec, [1, 340_000_000], "metric")

    def test_rungs_closer_than_a_grain_are_refused_by_number(self) -> None:
        """At 40 a grain of 2**-64 is 0.013 of epsilon: no room for eight rungs of a micro."""
        with pytest.raises(UnrelatedRungsError, match=r"rung [1-7]: 64-bit thresholds cannot"):
            build(GRR, list(range(39_999_993, 40_000_001)), "metric")

    def test_no_probability_is_ever_zero(self) -> None:
        for case in EVERY.values():
            mechanism = case.build()
            for level in range(mechanism.levels):
                for rung in mechanism.exact(level):
                    assert 0 < rung.q < rung.p < 1


def test_encodings_of_the_small_cases_are_all_that_values_become() -> None:
    """The enumerations cover what the encoders do: neither more than they may, nor less."""
    for case in CASES.values():
        mechanism = case.build()
        expected = set(encodings(mechanism))
        scalars, _ = values(mechanism, 400)
        seen = {
            bits
            for symbol, identifier in zip(scalars, as_bytes(ids(400)), strict=True)
            for bits, weight in prior_of(mechanism, symbol, identifier)
            if weight
        }
        assert seen <= expected
        if mechanism.name != "rappor":
            assert seen == expected
