"""The market: what buyers see, what all of them together can infer, what spoils an estimate."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from small import chain_law
from statistical import check_normal

from mechanisms.errors import ParameterError
from mechanisms.exact import loss_micro
from mechanisms.testing import SeededSource
from papers.gradual_release.market import Catalogue

SEED = 20260305
FINE = Catalogue(domain_size=5, start=0.1, cap=1.0, stride=0.01)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(10, 100)), max_size=30),
    st.integers(0, 2**32),
)
def test_a_ledger_never_says_less_than_what_was_sold(
    orders: list[tuple[str, int]], seed: int
) -> None:
    seller = FINE.seller(3, SeededSource(seed))
    best: dict[str, int] = {}
    shown: dict[int, int] = {}
    for buyer, hundredths in orders:
        if hundredths <= best.get(buyer, 0):
            with pytest.raises(ParameterError, match="no stronger report"):
                seller.sell(buyer, hundredths / 100)
            continue
        sale = seller.sell(buyer, hundredths / 100)
        best[buyer] = hundredths
        # One report a level, whoever buys it.
        assert shown.setdefault(sale.level, sale.report) == sale.report
        assert sale.cost == hundredths * 10_000
        assert seller.spent == max(best.values()) * 10_000
    assert sum(sale.increment for sale in seller.ledger) == seller.spent <= 1_000_000
    assert seller.left == 1_000_000 - seller.spent
    for buyer, top in best.items():
        own = seller.seen_by(buyer)
        assert {sale.buyer for sale in own} == {buyer}
        assert own[-1].cost == top * 10_000
        assert sum(sale.cost > own[0].cost for sale in own) == len(own) - 1


def test_colluding_buyers_infer_what_the_strongest_report_says() -> None:
    """Any set of levels, enumerated: its loss is that of the strongest one in it."""
    catalogue = Catalogue(domain_size=3, start=0.5, cap=2.0, stride=0.5)
    laws = [chain_law(catalogue._chain, x) for x in range(3)]
    for sold in itertools.chain.from_iterable(
        itertools.combinations(range(4), size) for size in (1, 2, 3)
    ):
        seen: list[dict[tuple[int, ...], Fraction]] = [{} for _ in laws]
        for law, marginal in zip(laws, seen, strict=True):
            for outputs, share in law.items():
                key = tuple(outputs[level] for level in sold)
                marginal[key] = marginal.get(key, Fraction(0)) + share
        ratio = max(max(c) / min(c) for c in ([law[k] for law in seen] for k in seen[0]))
        assert loss_micro(ratio) == catalogue.amounts.certified[sold[-1]]


def test_levels() -> None:
    assert FINE.levels == len(FINE.amounts.nominal) == 91
    assert [FINE.level_of(x) for x in (0.1, 0.105, 0.11, 0.999, 1.0)] == [0, 0, 1, 89, 90]
    odd = Catalogue(domain_size=2, start=0.3, cap=1.0, stride=0.4)
    assert odd.amounts.nominal == (300_000, 700_000, 1_000_000)
    assert Catalogue(2, 1.0, 1.0, 0.1).levels == 1


def buy(catalogue: Catalogue, values: list[int], epsilons: list[float], source: Any) -> list[Any]:
    sellers = [catalogue.seller(value, source) for value in values]
    return [s.sell("a", e) for s, e in zip(sellers, epsilons, strict=True)]


def test_estimates_from_mixed_amounts_are_unbiased() -> None:
    """Even where those with one value sell more of it."""
    values = [0] * 3000 + [1] * 2000 + [2] * 1000
    epsilons = [0.2 if value == 0 else 1.0 for value in values]
    catalogue = Catalogue(domain_size=3, start=0.1, cap=1.0, stride=0.1)
    found = catalogue.estimate(buy(catalogue, values, epsilons, SeededSource(SEED)))
    assert not found.biased
    check_normal(
        [each.value for each in found.shares],
        [1 / 2, 1 / 3, 1 / 6],
        [each.standard_error for each in found.shares],
        label=f"seed {SEED}",
    )
    assert found.shares[0].n == 6000


def test_upgrades_because_of_a_report_are_marked_and_biased() -> None:
    """0.5 to 2 exactly where a 1 was reported: the published size of the bias."""
    catalogue, source, n = Catalogue(2, 0.5, 2.0, 1.5), SeededSource(SEED), 15_000
    for bit, expected in ((0, -0.915), (1, 0.085)):
        sales = []
        for _ in range(n):
            seller = catalogue.seller(bit, source)
            sale = seller.sell("a", 0.5)
            if sale.report == 1:
                sale = seller.sell("a", 2.0, output_dependent=True)
            sales.append(sale)
        found = catalogue.estimate(sales)
        assert found.biased
        assert found.shares[1].value == pytest.approx(expected, abs=0.06)
        # Interval and all: it is sure of something that is wrong.
        assert abs(found.shares[1].value - bit) > 10 * found.shares[1].standard_error


def test_a_mark_stays() -> None:
    seller = FINE.seller(0, SeededSource(1))
    with pytest.raises(ParameterError, match="nothing has been sold"):
        seller.sell("a", 0.2, output_dependent=True)
    seller.sell("a", 0.2)
    seller.sell("a", 0.3, output_dependent=True)
    later = seller.sell("a", 0.4)
    other = seller.sell("b", 0.5)
    assert (later.output_dependent, other.output_dependent) == (True, False)
    assert FINE.estimate([later]).biased
    assert not FINE.estimate([other]).biased


@pytest.mark.parametrize(
    ("size", "start", "cap", "stride"),
    [(1, 0.1, 1, 0.1), (2, 1.1, 1.0, 0.1), (2, 0.0, 1, 0.1), (2, 0.1, math.nan, 0.1),
     (2, 0.1, 1.0, 0.0), (2, 0.1, 1.0, 0.0001), (2, 0.1, 41.0, 10.0)],
)  # fmt: skip
def test_catalogues_that_cannot_be_are_refused(
    size: int, start: float, cap: float, stride: float
) -> None:
    with pytest.raises(ParameterError):
        Catalogue(size, start, cap, stride)


@pytest.mark.parametrize("epsilon", [0.05, 1.01, math.nan, -1.0, math.inf])
def test_amounts_that_are_not_for_sale_are_refused(epsilon: float) -> None:
    seller = FINE.seller(0, SeededSource(1))
    with pytest.raises(ParameterError):
        seller.sell("a", epsilon)
    assert seller.ledger == ()
    with pytest.raises(ParameterError):
        FINE.seller(5, SeededSource(1))
    assert np.isfinite(seller.left)
