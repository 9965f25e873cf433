"""A plan's spending over time: a value, a day, a year, and for how long the lifetime lasts."""

import pytest
from agreed_plans import DAY, compiled, metric_document, plan_document

from sotto.design.spending import (
    YEAR,
    Levels,
    daily,
    in_words,
    lifetime_of,
    needed_panel,
    value_cost,
    warnings,
)
from sotto.errors import ParameterError

#: The cost of a value of the plan below, micro-epsilon.
COST = 2_000_000


def plan(*panels, ceiling=300, cost=1, **fields):
    """Metrics of ``cost`` values at 2 a week each, in these panels."""
    metrics = [
        metric_document(
            f"m{number}",
            repeat={"kind": "every", "limit": cost},
            **({} if panel == 1 else {"panel": panel}),
        )
        for number, panel in enumerate(panels)
    ]
    ceilings = {"period": len(panels) * cost * COST, "lifetime": ceiling * 1_000_000}
    return compiled(metrics=metrics, ceilings=ceilings, **fields)


def constant(**fields):
    """A metric of which only the permanent response takes of the lifetime: 2, and 1 a period."""
    ladder = plan_document()["metrics"][0]["ladder"]
    ladder[2]["after"] = ladder[1]["after"]
    return metric_document(
        "model", repeat={"kind": "constant", "limit": 1}, ladder=ladder, **fields
    )


def test_a_lifetime_lasts_for_as_many_turns_however_rare_they_are():
    for panel in (1, 4, 13, 26):
        lasts = lifetime_of(plan(panel, panel, panel))
        assert (lasts.panel, lasts.turns, lasts.periods) == (panel, 50, 50 * panel)
        assert lasts.yearly == pytest.approx(6_000_000 * 365.25 / 7 / panel)
        assert lasts.years == pytest.approx(50 * panel * 7 / 365.25)


def test_metrics_in_panels_of_their_own():
    """2 in each period and 4 in one of 4 are 3 a period."""
    lasts = lifetime_of(plan(1, 4, 4))
    assert (lasts.panel, lasts.turns, lasts.periods) == (None, None, 100)
    assert lasts.costs == ((1, COST), (4, 2 * COST))


def test_what_is_paid_for_once_takes_nothing_more():
    lasts = lifetime_of(compiled(metrics=[constant()]))
    assert (lasts.periods, lasts.years, lasts.yearly) == (None, float("inf"), 0)
    both = compiled(metrics=[constant(panel=4), metric_document("colour", panel=13)])
    assert lifetime_of(both).costs == ((13, COST),)
    assert lifetime_of(both).ceiling == both.ceilings.lifetime - COST


def test_the_least_panel_that_lasts():
    found = needed_panel(plan(1, 1, 1), 10)
    assert lifetime_of(plan(1, 1, 1), found).years >= 10
    assert lifetime_of(plan(1, 1, 1), found - 1).years < 10
    assert needed_panel(plan(1, ceiling=2), 1000) is None
    assert needed_panel(plan(1, ceiling=100_000), 10) == 1


def test_it_is_said_in_words():
    assert in_words(plan(13, 13, 13)) == [
        "with panel 1/13 a device answers in 4 periods of 7d a year and spends 24.1 of its "
        "lifetime of 300 a year: it lasts 12.5 years",
        "without panels it would last 0.958 years",
    ]
    assert in_words(plan(1, 1, 1)) == [
        "a device answers in every period of 7d, 52 a year, and spends 313 of its lifetime of 300 "
        "a year: it lasts 0.958 years",
        "with panel: 1/11 it would last 10.5 years",
    ]
    assert in_words(plan(1, 4, 4)) == [
        "with the panels 1/1 (m0), 1/4 (m1, m2) a device spends 157 of its lifetime of 300 a "
        "year: it lasts 1.92 years",
        "without panels it would last 0.958 years",
    ]
    assert in_words(compiled(metrics=[constant()])) == []


def test_a_value_costs_what_is_ever_drawn_of_it():
    assert [value_cost(metric) for metric in plan(1, cost=3).metrics] == [COST]
    # A constant metric draws its permanent response, which is more than what is sent.
    assert [value_cost(metric) for metric in compiled(metrics=[constant()]).metrics] == [COST]


def test_a_day_is_a_period_s_and_no_panel_hides_it():
    assert daily(plan(1, cost=7)) == daily(plan(13, cost=7)) == COST
    assert daily(plan(1, period=DAY)) == COST
    assert daily(plan(1, period=DAY // 2)) == 2 * COST


@pytest.mark.parametrize(("value", "warned"), [(1.999999, True), (2.0, False)])
def test_above_a_level_is_warned_of_and_at_it_not(value, warned):
    few = plan(1, ceiling=100_000)
    assert bool(warnings(few, Levels(value=value), 0)) is warned
    assert bool(warnings(plan(1, ceiling=100_000, cost=7), Levels(day=value), 0)) is warned


def test_a_lifetime_that_ends_early_is_warned_of():
    lasting = plan(13, 13, 13)
    end = 50 * 13 * 7 * DAY
    begins = lasting.expires - end
    assert warnings(lasting, Levels(), begins) == []
    assert "ends before the plan expires" in warnings(lasting, Levels(), begins - 1)[0]
    assert warnings(lasting, Levels(years=end / YEAR), begins) == []
    assert "lasts 12.5 years, less than 13" in warnings(lasting, Levels(years=13), begins)[0]


def test_a_level_is_above_nothing():
    for levels in ({"value": 0}, {"day": -1}, {"years": float("nan")}):
        with pytest.raises(ParameterError, match="must be above 0"):
            Levels(**levels)
