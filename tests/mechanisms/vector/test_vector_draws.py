"""Several answers a report: mixed priors, packing, coins, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import ids
from statistical import check_counts

from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.number.several import SeveralAnswers
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


def ladder(spec: dict[str, Any], amounts: list[int] | None = None) -> SeveralAnswers:
    built = build(spec, amounts or THREE, "metric")
    assert isinstance(built, SeveralAnswers)
    return built


def a_value(mechanism: SeveralAnswers, u: float = 0.6180339887) -> Any:
    if hasattr(mechanism, "dimensions"):
        return tuple((u + i / 3) % 1 for i in range(mechanism.dimensions))
    return u


@every_spec
def test_a_mixed_prior_is_that_of_independent_answers(spec: dict[str, Any]) -> None:
    mechanism = ladder(spec)
    identifier = bytes(range(16))
    value = a_value(mechanism)
    expected: Counter[int] = Counter()
    for answers in itertools.product(*mechanism.priors(value, mechanism.coin(identifier))):
        packed = mechanism.chain.pack_inputs([symbol for symbol, _ in answers])
        expected[packed] += math.prod(weight for _, weight in answers)
    assert dict(mechanism.prior(value, identifier, identifier)) == expected


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


def test_every_set_of_coordinates_is_as_likely() -> None:
    spec = {"name": "sampled_vector", "dimensions": 5, "sampled": 3, "bits": 0}
    mechanism = ladder(spec)
    chosen = mechanism.coordinates_many(mechanism.coins_of(ids(40_000)))
    sets = Counter(tuple(sorted(row)) for row in chosen.tolist())
    every = list(itertools.combinations(range(5), 3))
    check_counts([sets[one] for one in every], [Fraction(1, 10)] * 10, label=f"seed {SEED}")
    # The question about a coordinate has nothing to do with which one it is.
    bins = mechanism.slots_of(mechanism.coins_of(ids(40_000)))
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


@every_spec
def test_true_answers_of_many_are_those_of_each(spec: dict[str, Any]) -> None:
    """Values of which nothing is rounded at random: corners, and numbers that meet thresholds."""
    mechanism, n = ladder(spec), 60
    seeds, source = mechanism.coins_of(ids(n)), SeededSource(SEED)
    size = getattr(mechanism, "dimensions", 0)
    values: list[Any] = [i % 2 for i in range(n)]
    if size:
        exact = spec["name"] == "sampled_vector" and not spec["bits"]
        middle = [0.3, 0.6] if exact else [0.0, 1.0]
        values = [tuple(middle[(i + j) % 2] for j in range(size)) for i in range(n)]
    many = mechanism.true_answers_many(values, seeds, source)
    each = [mechanism.true_answers(u, int(s), source) for u, s in zip(values, seeds, strict=True)]
    assert many.tolist() == each


def test_inputs_may_be_more_than_outputs() -> None:
    """A grid of 17 points and a single bit of output: the device answers as the batch does."""
    spec = {"name": "sampled_hybrid", "dimensions": 4, "sampled": 2, "points": 17}
    mechanism = build(spec, [1_000_000], "m")
    assert mechanism.chain.single.size < mechanism.chain.single.inputs
    for value, points in ((0.0, [0, 0]), (0.25, [4, 4]), (1.0, [16, 16])):
        encoded = mechanism.encode((value,) * 4, bytes(16), bytes(16), SeededSource(1))
        assert mechanism.chain.unpack_inputs(encoded) == points
        zeros = math.prod(mechanism.chain.single.law(point, 0)[0] for point in points)
        assert mechanism.chain.law(encoded, 0)[0] == zeros
