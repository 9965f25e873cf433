"""Faults that an app, a caller or a hostile environment might cause in a randomizer, and must not.

Each test is a fault that a reviewer once found.
"""

from __future__ import annotations

import decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mechanisms import exact
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.category.unary import OptimizedUnaryEncoding
from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.levels import certify
from mechanisms.number.grid import split
from mechanisms.number.random_threshold import RandomThreshold
from mechanisms.number.sampled_bits import SampledBit
from mechanisms.number.split_bits import SplitBits
from mechanisms.randomness import SystemSource
from mechanisms.registry import build, mechanism_class

NUMBERS = [RandomThreshold(1.0), SampledBit(1.0, bits=4), SplitBits(1.0, bits=4)]


@pytest.mark.parametrize("precision", [1, 60])
@pytest.mark.parametrize("traps", [[], [decimal.Inexact, decimal.Rounded]])
def test_the_callers_decimal_context_changes_nothing(precision: int, traps: list[Any]) -> None:
    ladder = [300_000, 1_930_000]
    spec = {"name": "split_bits", "bits": 3, "missing": True}
    plain = build(spec, ladder, "m")
    exact.exp_bounds.cache_clear()
    hostile = decimal.Context(prec=precision, Emax=3, Emin=-3, traps=traps)
    with decimal.localcontext(hostile):
        again = build(spec, ladder, "m")
        amount = exact.loss_micro(Fraction(10**30))
    assert again == plain
    assert amount == exact.loss_micro(Fraction(10**30))


def test_a_changed_default_context_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decimal, "DefaultContext", decimal.Context(prec=2, Emax=5))
    context = exact.decimal_context(60)
    assert (context.prec, context.Emax, context.traps[decimal.Inexact]) == (60, 999_999, False)


@pytest.mark.parametrize("mechanism", NUMBERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("values", [np.array([0.3]), np.array(0.3), [0.3], 0.3])
def test_one_value_is_never_randomized_for_several_ids(mechanism: Any, values: Any) -> None:
    ids = np.zeros((20, 2), dtype=np.uint64)
    with pytest.raises(ParameterError, match="as many ids"):
        mechanism.randomize(values, ids, ids, SystemSource())


@pytest.mark.parametrize("mechanism", NUMBERS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("values", [["my secret"], [b"my secret"], [1j], [object()], [True]])
def test_what_is_no_number_is_refused_without_its_value(mechanism: Any, values: Any) -> None:
    ids = np.zeros((1, 2), dtype=np.uint64)
    with pytest.raises(ParameterError) as caught:
        mechanism.randomize(values, ids, ids, SystemSource())
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_narrow_floats_are_scaled_in_full() -> None:
    assert split(np.float32(1.0), 2**25 - 1) == split(1.0, 2**25 - 1)
    assert split(np.float16(0.5), 2**25 - 1) == split(0.5, 2**25 - 1)


@pytest.mark.parametrize("tenths", range(1, 40))
def test_a_certified_float_is_never_below_the_exact_amount(tenths: int) -> None:
    mechanism = GeneralizedRandomizedResponse(tenths / 10, 4)
    assert Fraction(mechanism.certified_epsilon) >= Fraction(mechanism.certified(), 1_000_000)


def test_chains_refuse_what_they_cannot_randomize() -> None:
    symbols = GeneralizedRandomizedResponse((1e-6, 1e-5), 5)
    vectors = OptimizedUnaryEncoding((1e-6, 1e-5), 3)
    with pytest.raises(ParameterError, match="symbol"):
        symbols.chain.draw(200, SystemSource())
    with pytest.raises(ParameterError, match="3 bits"):
        vectors.chain.draw(0b11000, SystemSource())


WHOLE = {
    **{name: {"domain_size": 5} for name in ("grr", "sue", "oue")},
    "local_hashing": {"domain_size": 5, "buckets": 5},
    "subset": {"domain_size": 5, "subset_size": 2},
    "hadamard": {"domain_size": 5, "blocks": 2},
    "rappor": {"bits": 8, "hashes": 2, "cohorts": 3},
    "sampled_bit": {"bits": 4, "missing": False},
    "sampled_bits": {"bits": 4, "count": 2, "missing": False},
    "split_bits": {"bits": 4, "missing": False},
    "sampled_vector": {"dimensions": 4, "sampled": 2, "bits": 4},
    "sampled_hybrid": {"dimensions": 4, "sampled": 2, "points": 9},
}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name, fields in WHOLE.items()
        for field in fields
        if field not in ("missing", "points")
    ],
)
def test_builders_refuse_parameters_that_are_no_ints(name: str, field: str) -> None:
    kind = mechanism_class(name)
    kind(1.0, **WHOLE[name])
    good = WHOLE[name][field]
    for wrong in (float(good), good + 0.5, True, str(good), None, np.int64(good), float("nan")):
        given = {**WHOLE[name], field: wrong}
        with pytest.raises(ParameterError, match=field):
            kind(1.0, **given)


@pytest.mark.parametrize("name", ["grr", "sue", "oue", "local_hashing", "subset", "hadamard"])
@pytest.mark.parametrize(
    "symbol", [1, np.int64(1), np.uint8(1), True, np.bool_(True), 1.0, np.float64(1), "1", None, 7]
)
def test_one_category_and_many_are_refused_alike(name: str, symbol: Any) -> None:
    ladder, ids = build({"name": name, **WHOLE[name]}, [1_000_000], "m"), np.zeros((1, 2), "u8")
    draws = (
        lambda: ladder.draw(symbol, bytes(16), bytes(16), SystemSource()),
        lambda: ladder.randomize([symbol], ids, ids, SystemSource()),
        lambda: ladder.randomize(np.array([symbol]), ids, ids, SystemSource()),
    )
    for draw in draws:
        if type(symbol) in (int, np.int64, np.uint8) and symbol < 5:
            assert len(draw()) == 1
        else:
            with pytest.raises(ParameterError):
                draw()


@pytest.mark.parametrize("ratios", [(3,), (1,), (2, 2), (2, 3, 2)])
def test_no_level_is_certified_above_its_nominal_amount_nor_without_a_gain(
    ratios: tuple[int, ...],
) -> None:
    """ln 2 is 693,148 micro-epsilon, rounded up, and ln 3 is 1,098,613."""
    nominal = (700_000, 1_200_000, 1_300_000)[: len(ratios)]
    with pytest.raises(UnrelatedLevelsError, match=f"level {len(ratios)}: certified at"):
        certify(nominal, [Fraction(ratio) for ratio in ratios])
    assert certify((700_000,), [Fraction(2)]).certified == (693_148,)
