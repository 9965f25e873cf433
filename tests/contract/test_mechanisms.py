"""Contract of every mechanism of the registry: its law, its certificate, its bytes, its counts.

Small mechanisms are enumerated exactly, from the integers that their samplers compare with; that
they draw by these laws is tested statistically, and for coarse thresholds by every sequence of
bits in ``tests/mechanisms/chains``.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replicas import replicate
from small import (
    CASES,
    Case,
    as_bytes,
    chain_law,
    encodings,
    five_percent_off,
    head_law,
    ids,
    input_laws,
    joint_law,
    level_law,
)
from small import values as some_values
from statistical import check_counts, check_normal, check_variance

from mechanisms import coins
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import exp_micro, loss_micro
from mechanisms.frozen import replace
from mechanisms.items import Context
from mechanisms.planner.targets import Assumed
from mechanisms.registry import REGISTRY, build, mechanism_class
from mechanisms.testing import SeededSource

SEED = 20260301
#: A value of the wrong kind that would be recognised in a message.
SECRET = 123_456_789


def large(name: str, *ladder: int, **parameters: int) -> Case:
    return Case({"name": name, **parameters}, ladder)


#: Besides the small ones: payloads of every width, filters of whole and broken bytes and words.
LARGE = {
    "grr-u8": large("grr", 500_000, 2_000_000, domain_size=256),
    "grr-u16": large("grr", 500_000, 2_000_000, domain_size=257),
    "grr-u32": large("grr", 500_000, 2_000_000, domain_size=65_537),
    "hashing-1000": large("local_hashing", 500_000, 2_000_000, domain_size=1000, buckets=7),
    "hashing-u16": large("local_hashing", 500_000, 5_000_000, domain_size=200, buckets=257),
    "subset-100": large("subset", 500_000, 1_000_000, domain_size=100, subset_size=27),
    "hadamard-1000": large("hadamard", 500_000, 2_000_000, domain_size=1000, blocks=8),
    "sue-64": large("sue", 500_000, 2_000_000, domain_size=64),
    "oue-65": large("oue", 500_000, 2_000_000, domain_size=65),
    "brr-u16": large("brr", 500_000, 1_000_000, domain_size=300, subset_size=87, missing=True),
    "top-u16": large("top_response", 1_000_000, domain_size=300, clip=2),
    "rappor-128": large("rappor", 500_000, 1_000_000, 2_000_000, bits=128, hashes=2, cohorts=16),
    "sampled-32": large("sampled_bit", 1_000_000, bits=32, missing=True),
    "split-32": large("split_bits", 500_000, 2_000_000, bits=32, missing=True),
    "eight": large("grr", *range(250_000, 2_000_001, 250_000), domain_size=5),
}
THREE = {name: case for name, case in CASES.items() if name.endswith("three")}
EVERY = {**THREE, **LARGE}
every_case = pytest.mark.parametrize("case", EVERY.values(), ids=EVERY.keys())
small_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
three_levels = pytest.mark.parametrize("case", THREE.values(), ids=THREE.keys())
#: Mechanisms of which a report is counted at its output alone.
ONE_COUNT = {
    *("grr", "hadamard", "brr", "warner", "simmons", "christofides"),
    *("permute_and_flip", "top_response"),
}
#: Mechanisms whose estimates are shares of values, of which each client has one.
SHARES: dict[str, dict[str, Any]] = {
    "grr": {"domain_size": 5},
    "sue": {"domain_size": 5},
    "oue": {"domain_size": 5},
    "local_hashing": {"domain_size": 5, "buckets": 3},
    "subset": {"domain_size": 5, "subset_size": 2},
    "hadamard": {"domain_size": 5, "blocks": 2},
    "rappor": {"bits": 16, "hashes": 2, "cohorts": 4},
}
shares = pytest.mark.parametrize("name", SHARES)


def worst_ratio(laws: list[dict[tuple[int, ...], Fraction]]) -> Fraction:
    return max(
        max(column) / min(column)
        for column in ([law.get(o, 0) for law in laws] for o in set().union(*laws))
    )


class TestLaw:
    """By enumeration of whole chains in exact fractions."""

    @small_case
    def test_a_chain_up_to_a_level_costs_what_that_level_is_certified_at(self, case: Case) -> None:
        mechanism = case.build()
        laws = input_laws(mechanism)
        assert all(sum(law.values()) == 1 for law in laws)
        for level in range(mechanism.levels):
            ratio = worst_ratio([head_law(law, level + 1) for law in laws])
            assert ratio == worst_ratio([level_law(law, level) for law in laws])
            assert loss_micro(ratio) == mechanism.certified(level)

    @small_case
    def test_certified_amounts_increase_and_never_exceed_the_nominal_ones(self, case: Case) -> None:
        mechanism = case.build()
        amounts = [mechanism.certified(level) for level in range(mechanism.levels)]
        assert amounts == sorted(set(amounts))
        assert [mechanism.nominal(level) for level in range(mechanism.levels)] == list(case.ladder)
        for have, want in zip(amounts, case.ladder, strict=True):
            assert want - 1 <= have <= want

    @small_case
    def test_a_weaker_level_is_the_stronger_one_degraded_without_the_value(
        self, case: Case
    ) -> None:
        """The law that the sampler's steps make is the one that probabilities are taken from."""
        mechanism = case.build()
        chain: Any = mechanism.chain
        for level in range(0 if chain.independent_bits else mechanism.levels):
            laws = [level_law(law, level) for law in input_laws(mechanism)]
            assert chain.ratio(level) == worst_ratio(laws)
        for encoded in encodings(mechanism):
            law = chain_law(chain, encoded)
            for level in range(mechanism.levels):
                outputs = {output: share for (output,), share in level_law(law, level).items()}
                assert outputs == {o: s for o, s in chain.law(encoded, level).items() if s}
                pairs = mechanism.exact(level)
                if chain.independent_bits:
                    for index in range(chain.width):
                        share = sum(s for output, s in outputs.items() if output >> index & 1)
                        assert share == pairs[index % len(pairs)][not encoded >> index & 1]
                floats = [(float(p), float(q)) for p, q in pairs]
                assert [tuple(pair) for pair in mechanism.probabilities(level)] == floats

    @three_levels
    def test_draws_have_the_exact_law(self, case: Case) -> None:
        """Scalar and vectorised: the joint law of all levels, of one value."""
        mechanism, n = case.build(), 10_000
        symbol, identifiers = fixed_symbol(mechanism), np.repeat(ids(1), n, axis=0)
        identifier = as_bytes(identifiers[:1])[0]
        law = {o: share for o, share in joint_law(mechanism, symbol, identifier).items() if share}
        vector = [symbol] * n if mechanism.name == "rappor" else np.array([symbol] * n)
        drawn = mechanism.randomize(vector, identifiers, identifiers, SeededSource(SEED))
        many = chains_in(drawn)
        for counts in (many, scalar_draws(mechanism, symbol, identifier, 1_000)):
            assert set(counts) <= set(law)
            seen = [counts[outputs] for outputs in law]
            check_counts(seen, list(law.values()), label=f"seed {SEED}")

    def test_a_weaker_level_drawn_without_the_stronger_one_would_be_caught(self) -> None:
        """Marginals alone do not show it: the joint law does."""
        mechanism, n = CASES["grr5-three"].build(), 20_000
        law = chain_law(mechanism.chain, 1)
        one = mechanism.randomize(np.full(n, 1), ids(n), ids(n), SeededSource(SEED))
        two = mechanism.randomize(np.full(n, 1), ids(n), ids(n), SeededSource(SEED + 1))
        mixed = np.concatenate([one[:, :1], two[:, 1:]], axis=1)
        counts = chains_in(mixed)
        with pytest.raises(AssertionError):
            check_counts([counts[outputs] for outputs in law], list(law.values()))

    @pytest.mark.parametrize(
        "name", ["sampled", "split", "split-missing", "bits", "vector-bits", "vector-grid", "wave"]
    )
    def test_values_between_grid_points(self, name: str) -> None:
        """Scalar and vectorised draws have the joint law where values are rounded at random."""
        mechanism, n = CASES[f"{name}-wide"].build(), 3_000
        # All bits of its neighbours on the grid of eight differ; two that the coins ask, too.
        value: Any = 0.49
        if hasattr(mechanism, "dimensions"):
            value = tuple(value / (1 + place) for place in range(mechanism.dimensions))
        identifiers = np.repeat(ids(1, 7), n, axis=0)
        identifier = as_bytes(identifiers[:1])[0]
        values, source = np.array([value] * n), SeededSource(SEED)
        many = chains_in(mechanism.randomize(values, identifiers, identifiers, source))
        law = joint_law(mechanism, value, identifier)
        for counts in (many, scalar_draws(mechanism, value, identifier, n)):
            assert set(counts) <= set(law)
            seen = [counts[outputs] for outputs in law]
            check_counts(seen, list(law.values()), label=f"seed {SEED}")


class TestAudit:
    """The hooks that an audit starts from, for the mechanisms that have them."""

    @small_case
    def test_the_worst_inputs_have_the_certified_loss(self, case: Case) -> None:
        mechanism = case.build()
        for level in range(mechanism.levels):
            one, other = (mechanism.law(x, level) for x in mechanism.worst_inputs(level))
            found = max(max(one[o] / other[o], other[o] / one[o]) for o in one if one[o])
            # A grid's are found among floats.
            assert 0 <= mechanism.realised_ratio(level) - found <= found * 1e-12
            assert loss_micro(found) == mechanism.certified(level)

    @three_levels
    def test_log_ratios_are_those_of_the_law(self, case: Case) -> None:
        mechanism, n = case.build(), 20
        pair = mechanism.worst_inputs(-1)
        chains = ids(n)
        drawn = mechanism.randomize([pair[0]] * n, chains, np.zeros_like(chains), SeededSource(1))
        for level in range(mechanism.levels):
            found = mechanism.log_ratios(pair, drawn[:, level], chains, level)
            for report, chain, said in zip(
                drawn[:, level], as_bytes(chains), found.tolist(), strict=True
            ):
                output = int.from_bytes(report.tobytes(), "little")
                one, other = (mechanism.law(x, level, chain)[output] for x in pair)
                assert said == pytest.approx(math.log(other / one), abs=1e-9)

    @three_levels
    def test_a_probability_five_percent_off_is_not_what_was_certified(self, case: Case) -> None:
        mechanism = case.build()
        wrong = five_percent_off(mechanism)
        level = mechanism.levels - 1
        assert loss_micro(mechanism.realised_ratio(level)) == mechanism.certified(level)
        assert wrong.realised_ratio(level) > exp_micro(mechanism.certified(level))[1]

    @small_case
    def test_some_inputs_are_different_values_that_can_be_drawn(self, case: Case) -> None:
        mechanism, source = case.build(), SeededSource(SEED)
        inputs = mechanism.some_inputs(4, source)
        assert 1 < len(inputs) == len(set(inputs)) <= 5
        for value in inputs:
            mechanism.draw(value, bytes(16), bytes(16), source)


class TestBytes:
    @every_case
    def test_payloads(self, case: Case) -> None:
        """Width, type, validity, seeds: alike in both ways of drawing; inputs are untouched."""
        mechanism, n = case.build(), 60
        scalars, vector = some_values(mechanism, n)
        chains, pseudonyms = ids(n), ids(n, SEED + 1)
        before = copy.deepcopy((vector, chains, pseudonyms))
        drawn, again = (
            mechanism.randomize(vector, chains, pseudonyms, SeededSource(SEED)) for _ in range(2)
        )
        assert drawn.shape == (n, mechanism.levels, mechanism.payload_width)
        assert drawn.dtype == np.uint8
        assert (drawn == again).all()
        for have, want in zip((vector, chains, pseudonyms), before, strict=True):
            np.testing.assert_array_equal(have, want)
        source, other = SeededSource(SEED), SeededSource(SEED)
        for symbol, chain, pseudonym in zip(
            scalars, as_bytes(chains), as_bytes(pseudonyms), strict=True
        ):
            payloads = mechanism.draw(symbol, chain, pseudonym, source)
            assert payloads == mechanism.draw(symbol, chain, pseudonym, other)
            rows = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(mechanism.levels, -1)
            assert rows.shape[1] == mechanism.payload_width
            assert mechanism.valid(rows).all()
        for level in range(mechanism.levels):
            assert mechanism.valid(drawn[:, level]).all()

    @every_case
    def test_no_values_no_reports(self, case: Case) -> None:
        mechanism = case.build()
        nothing = [] if mechanism.name == "rappor" else np.array([])
        drawn = mechanism.randomize(nothing, ids(0), ids(0), SeededSource(SEED))
        assert drawn.shape == (0, mechanism.levels, mechanism.payload_width)
        assert mechanism.valid(drawn[:, 0]).shape == (0,)
        counts = mechanism.accumulate(drawn[:, 0], ids(0), ids(0), np.zeros(0, np.int64), 2)
        assert counts.shape == (2, mechanism.count_length)
        assert not counts.any()

    @every_case
    def test_what_is_no_output_is_not_valid(self, case: Case) -> None:
        mechanism = case.build()
        chain: Any = mechanism.chain
        limit = 1 << chain.width if hasattr(chain, "width") else chain.size
        room = 1 << (8 * mechanism.payload_width)
        outputs = sorted({0, limit - 1, *(x for x in (limit, room - 1) if x < room)})
        rows = np.frombuffer(
            b"".join(x.to_bytes(mechanism.payload_width, "little") for x in outputs), dtype=np.uint8
        ).reshape(len(outputs), -1)
        subset = getattr(chain, "k", None)
        possible = dict(enumerate(getattr(mechanism, "possible", ())))
        valid = [
            x < limit and subset in (None, x.bit_count()) and possible.get(x, True) for x in outputs
        ]
        assert mechanism.valid(rows).tolist() == valid
        for row in rows[[place for place, good in enumerate(valid) if not good]]:
            if mechanism.levels > 1:
                with pytest.raises(ParameterError, match="payload"):
                    mechanism.weaker(row.tobytes(), SeededSource(1))

    @every_case
    def test_values_of_the_wrong_kind_are_refused_and_never_shown(self, case: Case) -> None:
        mechanism = case.build()
        wrong: list[Any]
        if mechanism.name == "rappor":
            pytest.skip("every string is one")
        if hasattr(mechanism, "domain_size"):
            wrong = [-1, mechanism.domain_size, SECRET, 0.5, math.nan]
        else:
            wrong = [-0.015625, SECRET, math.nan, math.inf]
            if hasattr(mechanism, "dimensions"):
                wrong = [(1.0,) * (mechanism.dimensions - 1) + (each,) for each in wrong]
            if not getattr(mechanism, "missing", False):
                wrong.append(None)
        for value in wrong:
            for attempt in attempts(mechanism, value):
                with pytest.raises(ParameterError) as caught:
                    attempt()
                assert str(SECRET) not in str(caught.value)

    @every_case
    def test_a_mechanism_is_a_value(self, case: Case) -> None:
        mechanism = case.build()
        again = replace(mechanism)
        assert mechanism is not again
        assert mechanism == again
        assert hash(mechanism) == hash(again)
        with pytest.raises(FrozenInstanceError):
            mechanism.domain_size = 3  # type: ignore[attr-defined]


class TestCounts:
    @every_case
    def test_counts_are_those_of_a_person_who_counts(self, case: Case) -> None:
        mechanism, n, n_groups = case.build(), 200, 4
        _, vector = some_values(mechanism, n)
        chains, pseudonyms = ids(n), ids(n, SEED + 1)
        payloads = mechanism.randomize(vector, chains, pseudonyms, SeededSource(SEED))[:, -1]
        groups = np.random.default_rng(SEED).integers(0, n_groups, size=n)
        counts = mechanism.accumulate(payloads, chains, pseudonyms, groups, n_groups)
        assert counts.dtype == np.int64
        expected = np.zeros((n_groups, mechanism.count_length), dtype=np.int64)
        for payload, chain, pseudonym, group in zip(
            payloads, as_bytes(chains), as_bytes(pseudonyms), groups, strict=True
        ):
            output = int.from_bytes(payload.tobytes(), "little")
            for place in places(mechanism, output, chain, pseudonym):
                expected[group, place] += 1
        np.testing.assert_array_equal(counts, expected)

    @given(st.data())
    @settings(max_examples=30)
    def test_counts_add_up(self, data: st.DataObject) -> None:
        """However the rows are cut and ordered."""
        case = data.draw(st.sampled_from(list(CASES.values())))
        mechanism, n = case.build(), data.draw(st.integers(1, 60))
        _, vector = some_values(mechanism, n)
        chains = ids(n)
        payloads = mechanism.randomize(vector, chains, chains, SeededSource(SEED))[:, 0]
        groups = np.arange(n) % 3
        order = np.array(data.draw(st.permutations(range(n))))
        cut = data.draw(st.integers(0, n))
        whole = mechanism.accumulate(payloads, chains, chains, groups, 3)
        parts = [
            mechanism.accumulate(payloads[part], chains[part], chains[part], groups[part], 3)
            for part in (order[:cut], order[cut:])
        ]
        np.testing.assert_array_equal(whole, parts[0] + parts[1])


class TestEstimates:
    @shares
    def test_shares_are_unbiased_and_vary_as_stated(self, name: str) -> None:
        """Mixed levels that depend on the value; the error of one level is what was planned."""
        mechanism, values, context, truth = population(name, 400)
        wanted = ("share", "string")
        levels = np.arange(400) % 3 if name == "rappor" else np.arange(400) * 3 // 400
        for newest, repeats in ((levels, 60), (np.full(400, 2), 60)):
            counts = replicate(mechanism, values, newest, repeats, SEED)
            found = [
                [
                    each.estimate
                    for each in mechanism.estimate(table, context)
                    if each.kind in wanted
                ]
                for table in counts
            ]
            means = np.array([[each.value for each in row] for row in found])
            errors = np.array([[each.standard_error**2 for each in row] for row in found])
            spread = (errors.mean(axis=0) / repeats) ** 0.5
            check_normal(means.mean(axis=0), truth, 1.2 * spread, label=f"seed {SEED}")
        assumed = Assumed(share=truth[0], candidates=context.candidates)
        planned = mechanism.precision(2, assumed, 1.0).variance(400) / 400
        check_variance(means[:, 0], planned, false_failure_rate=1e-6, label=f"seed {SEED}")

    @shares
    def test_the_noise_of_a_report_is_that_of_the_estimates(self, name: str) -> None:
        """On average over the true category and the one that is asked about."""
        mechanism: Any = build({"name": name, **SHARES[name]}, [1_000_000, 2_000_000], "m")
        if name == "rappor":
            pytest.skip("the bits of a filter are no shares")
        size = mechanism.domain_size
        for level in (0, 1):
            noise = mechanism.noise(level)
            table = np.array([mechanism.variances(level, true) for true in np.eye(size)])
            assert noise.yes == pytest.approx(np.trace(table) / size)
            assert noise.no == pytest.approx((table.sum() - np.trace(table)) / (size * (size - 1)))
            assert max(noise.over, noise.under) >= noise.step / 2 > 0

    @shares
    def test_without_the_debias_it_would_be_caught(self, name: str) -> None:
        mechanism, values, _, truth = population(name, 400)
        if name == "rappor":
            pytest.skip("the bits of a filter are no shares")
        tables = replicate(mechanism, values, np.full(400, 2), 60, SEED)
        plain = np.array([mechanism.supports(table)[0][2] / 400 for table in tables])  # type: ignore[attr-defined]
        with pytest.raises(AssertionError):
            check_normal(plain.mean(axis=0), truth, plain.std(axis=0) / 60**0.5 + 1e-9)

    @shares
    def test_nothing_counted_determines_nothing(self, name: str) -> None:
        mechanism, _, context, _ = population(name, 10)
        nothing = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
        for item in mechanism.estimate(nothing, context):
            assert math.isnan(item.estimate.value)
            assert item.estimate.interval() == (-math.inf, math.inf)

    @shares
    def test_a_payload_is_described_by_what_it_counts_for(self, name: str) -> None:
        mechanism, values, context, _ = population(name, 20)
        for value in values:
            payload = mechanism.draw(value, bytes(16), bytes(16), SeededSource(SEED))[-1]
            text = mechanism.describe(payload, bytes(16), bytes(16), context)
            if name == "rappor":
                assert text.endswith("of 4")
                continue
            table = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
            output = int.from_bytes(payload, "little")
            table[-1, places(mechanism, output, bytes(16), bytes(16))] = 1
            supports, _ = mechanism.supports(table)  # type: ignore[attr-defined]
            named = {each.strip("'") for each in text.removeprefix("one of ").split(", ")}
            counted = {x for x, n in zip(context.labels, supports[-1], strict=True) if n > 0}
            assert named == (counted or {"none of the values"})


def population(name: str, n: int) -> tuple[Mechanism, Any, Context, list[float]]:
    """A mechanism at three levels, values of clients, and the true shares."""
    mechanism = build({"name": name, **SHARES[name]}, [1_000_000, 2_000_000, 6_000_000], "metric")
    numbers = np.minimum(np.random.default_rng(SEED).geometric(0.5, size=n) - 1, 4)
    truth = (np.bincount(numbers, minlength=5) / n).tolist()
    labels = tuple(f"value {number}" for number in range(5))
    if name == "rappor":
        return mechanism, [labels[x].encode() for x in numbers], Context(candidates=labels), truth
    return mechanism, numbers, Context(labels=labels), truth


def test_every_mechanism_of_the_registry_is_enumerated() -> None:
    named = {case.spec["name"] for case in CASES.values()}
    assert set(REGISTRY) == named, "each has a small example in SPECS of tests/mechanisms/small.py"
    for name in REGISTRY:
        kind = mechanism_class(name)
        assert kind.name == name
        assert kind.types
        assert kind.coins in ("none", "chain", "pseudonym")


def outcomes(payloads: np.ndarray) -> list[int]:
    """The outputs of a chain, ``(levels, width)``, as integers."""
    return [int.from_bytes(row.tobytes(), "little") for row in payloads]


def chains_in(drawn: np.ndarray) -> Counter[tuple[int, ...]]:
    """How often each chain was drawn, of payloads ``(n, levels, width)``."""
    found, times = np.unique(drawn, axis=0, return_counts=True)
    return Counter(
        {tuple(outcomes(rows)): n for rows, n in zip(found, times.tolist(), strict=True)}
    )


def fixed_symbol(mechanism: Mechanism) -> Any:
    """A value that becomes the same in every run: a grid point."""
    if mechanism.name == "rappor":
        return b"a string"
    if hasattr(mechanism, "dimensions"):
        return (1.0,) * mechanism.dimensions
    if hasattr(mechanism, "clip"):
        return 2, 0, 1
    return 1 if hasattr(mechanism, "domain_size") else 1.0


def scalar_draws(
    mechanism: Mechanism, symbol: Any, identifier: bytes, n: int
) -> Counter[tuple[int, ...]]:
    """Chains of one value, as a device draws them."""
    source = SeededSource(SEED + 1)
    drawn = (mechanism.draw(symbol, identifier, identifier, source) for _ in range(n))
    return Counter(tuple(int.from_bytes(each, "little") for each in chain) for chain in drawn)


def attempts(mechanism: Mechanism, value: Any) -> list[Callable[[], object]]:
    """Ways to randomize a value."""
    source, zero = SeededSource(SEED), bytes(16)
    calls: list[Callable[[], object]] = [lambda: mechanism.draw(value, zero, zero, source)]
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    if not (missing and getattr(mechanism, "missing", False)):
        many = np.array([math.nan if value is None else value])
        if value is None and hasattr(mechanism, "dimensions"):
            many = np.full((1, mechanism.dimensions), math.nan)
        calls.append(lambda: mechanism.randomize(many, ids(1), ids(1), source))
    return calls


def places(mechanism: Any, output: int, chain: bytes, pseudonym: bytes) -> list[int]:
    """The places at which a report is counted, from the layout's description."""
    coin = coins.hash_id(chain, coins.coin_domain("metric"))
    if mechanism.name in (*ONE_COUNT, "duchi", "piecewise", "hybrid", "square_wave"):
        return [output]
    if mechanism.name in ("sampled_bits", "sampled_vector", "sampled_hybrid"):
        bits, size = mechanism.chain.bits, mechanism.chain.single.size
        answers = [output >> bits * place & (1 << bits) - 1 for place in range(mechanism.answered)]
        return [
            place * size + each for place, each in zip(asked(mechanism, coin), answers, strict=True)
        ]
    if mechanism.name == "local_hashing":
        return [coin % mechanism.hashes * mechanism.buckets + output]
    if mechanism.name == "threshold":
        return [(coin >> 58) * (2 + mechanism.missing) + output]
    if mechanism.name == "sampled_bit":
        exponent = (1 + coin % (2**mechanism.bits - 1)).bit_length() - 1
        return [(mechanism.bits - 1 - exponent) * (2 + mechanism.missing) + output]
    said = hasattr(mechanism.chain, "width")
    assert said, f"say above where {mechanism.name} is counted; ONE_COUNT, if at its output"
    width, start = mechanism.chain.width, 0
    if mechanism.name == "rappor":
        cohort = coins.hash_id(pseudonym, coins.cohort_domain("metric")) % mechanism.cohorts
        start = cohort * (width + 1)
    return [start + index for index in range(width) if output >> index & 1] + [start + width]


def asked(mechanism: Any, seed: int) -> list[int]:
    """The question that each answer of a report is about, numbered as counts are laid out."""
    coin = [coins.mix64((seed + i * 0x9E3779B97F4A7C15) % 2**64) for i in range(1, 9)]
    if mechanism.name == "sampled_bits":
        return [mechanism.bits - (1 + c % (2**mechanism.bits - 1)).bit_length() for c in coin][
            : mechanism.count
        ]
    k, d, chosen = mechanism.sampled, mechanism.dimensions, list[int]()
    for place in range(k):
        drawn = coin[place] % (d - k + place + 1)
        chosen.append(d - k + place if drawn in chosen else drawn)
    if mechanism.name == "sampled_hybrid":
        return chosen
    found = []
    for place, c in zip(chosen, coin[k : 2 * k], strict=True):
        bits = mechanism.bits
        slot = bits - (1 + c % (2**bits - 1)).bit_length() if bits else c >> 60
        found.append(place * (bits or 16) + slot)
    return found
