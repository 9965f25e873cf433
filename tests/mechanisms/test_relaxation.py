"""The closed forms of relaxation, against the papers' values and against 60 digits."""

from __future__ import annotations

import itertools
import math
from decimal import Context, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import Vector, vectors

from mechanisms.errors import ParameterError
from mechanisms.papers.relaxation import (
    chain_log_ratio,
    chain_probability,
    degradation_probabilities,
    keep_probability,
    relaxation,
)


@vectors("relax_probs")
def test_forward_probabilities(vector: Vector) -> None:
    m, one, two = (vector.inputs[name] for name in ("m", "eps1", "eps2"))
    got = relaxation(m, one, two)
    for name, expected in vector.expected.items():
        vector.check(getattr(got, name.removesuffix("_each")), expected)


@vectors("relax_T")
def test_degradations(vector: Vector) -> None:
    got = degradation_probabilities(*(vector.inputs[name] for name in ("m", "eps1", "eps2")))
    vector.check(got.same, vector.expected["t_diag"])
    vector.check(got.other, vector.expected["t_off"])


@vectors("relax_oue_flip")
def test_flips_of_optimized_unary_encoding(vector: Vector) -> None:
    got = degradation_probabilities(2, vector.inputs["eps1"], vector.inputs["eps2"])
    vector.check(got.other)


@vectors("relax_bipartite")
def test_kept_shares(vector: Vector) -> None:
    names = ("N", "m", "eps1", "eps2")
    vector.check(
        keep_probability(*(vector.inputs[name] for name in names)), vector.expected["rho_keep"]
    )


@vectors("relax_sequence")
def test_chains(vector: Vector) -> None:
    names = ("m", "eps", "outputs", "x")
    vector.check(chain_probability(*(vector.inputs[name] for name in names)))


@vectors("relax_seq_logratio")
def test_a_chain_costs_what_its_last_report_costs(vector: Vector) -> None:
    m, epsilons, outputs = (vector.inputs[name] for name in ("m", "eps", "outputs"))
    one, other = (
        chain_probability(m, epsilons, outputs, vector.inputs[value]) for value in ("a", "b")
    )
    vector.check(math.log(one / other))
    vector.check(chain_log_ratio(m, epsilons, outputs, vector.inputs["a"], vector.inputs["b"]))


def test_the_ratio_of_a_chain_is_known_where_its_probability_underflows() -> None:
    assert chain_log_ratio(5, [100.0, 300.0, 700.0], [0, 1, 2], 3, 2) == -700
    assert chain_log_ratio(5, [100.0, 300.0, 700.0], [0, 1, 2], 3, 4) == 0


def precise(m: int, one: float, two: float) -> dict[str, Decimal]:
    """The printed equations, with so many digits that nothing they lose is seen."""
    with localcontext(Context(prec=700)):
        low, high = Decimal(one).exp(), Decimal(two).exp()
        c1, c2 = 1 / (low + m - 1), 1 / (high + m - 1)
        other = (high - low) / ((low + m - 1) * (high - 1))
        same = 1 - (m - 1) * other
        return {
            "p_aa": c2 * high * same / (c1 * low),
            "p_ba": c2 * high * other / c1,
            "p_bb": c2 * same / c1,
            "p_ac": c2 * other / (c1 * low),
            "p_bc": c2 * other / c1,
            "same": same,
            "other": other,
        }


EPSILONS = st.one_of(
    st.floats(1e-12, 1e-6), st.floats(1e-6, 1), st.floats(1, 40), st.floats(40, 700)
)


def worst_error(got: dict[str, float], expected: dict[str, Decimal]) -> float:
    return max(
        abs(float((Decimal(value) - expected[name]) / expected[name]))
        for name, value in got.items()
        if expected[name] > Decimal("1e-290")
    )


@given(st.one_of(st.integers(2, 1000), st.integers(2, 10**6)), EPSILONS, EPSILONS)
def test_nothing_is_lost_from_tiny_to_huge(m: int, first: float, second: float) -> None:
    one, two = sorted((first, second))
    if one == two:
        return
    got = {**vars(relaxation(m, one, two)), **vars(degradation_probabilities(m, one, two))}
    # A sum one + two in an exponent is itself rounded: up to 1400 * 2**-53.
    assert worst_error(got, precise(m, one, two)) <= 2e-15 + (one + two) * 3e-16


@pytest.mark.slow
@given(st.integers(2, 10**6), st.lists(EPSILONS, min_size=1, max_size=6, unique=True), st.data())
def test_chains_lose_nothing(m: int, epsilons: list[float], data: st.DataObject) -> None:
    epsilons = sorted(epsilons)
    outputs = [data.draw(st.integers(0, 1)) for _ in epsilons]
    with localcontext(Context(prec=700)):
        last = Decimal(epsilons[-1]).exp()
        expected = (last if outputs[-1] == 1 else 1) / (last + m - 1)
        for k, (one, two) in enumerate(itertools.pairwise(epsilons)):
            step = precise(m, one, two)
            expected *= step["same" if outputs[k] == outputs[k + 1] else "other"]
    got = chain_probability(m, epsilons, outputs, 1)
    if expected > Decimal("1e-290"):
        assert worst_error({"p": got}, {"p": expected}) <= 1e-12


def test_the_printed_form_would_be_caught() -> None:
    m, one, two = 5, 1e-9, 2e-9
    low, high = math.exp(one), math.exp(two)
    other = (high - low) / ((low + m - 1) * (high - 1))
    assert worst_error({"other": other}, precise(m, one, two)) > 1e-9


def test_equal_levels_change_nothing() -> None:
    assert vars(relaxation(7, 2.5, 2.5)) == {
        "p_aa": 1, "p_ba": 0, "p_bb": 1, "p_ac": 0, "p_bc": 0,
    }  # fmt: skip
    assert degradation_probabilities(7, 2.5, 2.5).same == 1


@given(st.integers(2, 50), st.floats(1e-6, 40), st.floats(1e-6, 40))
def test_probabilities_sum_to_one(m: int, first: float, second: float) -> None:
    one, two = sorted((first, second))
    law = relaxation(m, one, two)
    assert law.p_aa + (m - 1) * law.p_ac == pytest.approx(1, abs=1e-12)
    assert law.p_ba + law.p_bb + (m - 2) * law.p_bc == pytest.approx(1, abs=1e-12)
    step = degradation_probabilities(m, one, two)
    assert step.same + (m - 1) * step.other == pytest.approx(1, abs=1e-12)
    keep = keep_probability(m, 1, one, two)
    assert keep + (1 - keep) / m == pytest.approx(step.same, abs=1e-12)


@pytest.mark.parametrize(
    ("m", "one", "two"),
    [(1, 1, 2), (2, 2, 1), (2, 0, 1), (2, math.nan, 1), (2, 1, math.nan), (2, 1, 701), (2, -1, 1)],
)
def test_parameters_outside_their_range_are_refused(m: int, one: float, two: float) -> None:
    for function in (relaxation, degradation_probabilities):
        with pytest.raises(ParameterError):
            function(m, one, two)
    with pytest.raises(ParameterError):
        keep_probability(m, 1, one, two)


def test_more_parameters_outside_their_range() -> None:
    with pytest.raises(ParameterError, match="subset_size"):
        keep_probability(5, 5, 1, 2)
    for function in (
        lambda epsilons, outputs: chain_probability(3, epsilons, outputs, 0),
        lambda epsilons, outputs: chain_log_ratio(3, epsilons, outputs, 0, 1),
    ):
        with pytest.raises(ParameterError, match="outputs"):
            function([1.0], [0, 1])
    with pytest.raises(ParameterError, match="epsilons"):
        chain_log_ratio(3, [2.0, 1.0], [0, 1], 0, 1)
