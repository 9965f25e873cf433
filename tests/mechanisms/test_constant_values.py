"""Constant values: many periods cost what the permanent response does, each by itself its level."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from small import (
    LADDERS,
    SPECS,
    Law,
    chain_law,
    coarse_symbols,
    encodings,
    level_law,
)
from sources import HighBits, exact_law

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import exp_micro, loss_micro
from mechanisms.registry import build, supports_constant
from mechanisms.testing import SeededSource

SEED = 20260302
NO_ID = bytes(16)
CONSTANT = ["grr2", "sue3", "oue2", "oue3", "rappor-full", "split"]
every_spec = pytest.mark.parametrize("name", CONSTANT)


def mechanism_of(name: str, ladder: tuple[int, ...] = LADDERS["three"]) -> Mechanism:
    return build(SPECS[name], ladder, "metric")


def refreshed(law: Law) -> dict[int, Law]:
    """The law of what is sent in one period, given the permanent response."""
    given: dict[int, dict[tuple[int, ...], Fraction]] = defaultdict(dict)
    for outputs, share in law.items():
        given[outputs[-1]][outputs[:-1]] = share
    return {
        last: {outputs: share / sum(rest.values()) for outputs, share in rest.items()}
        for last, rest in given.items()
    }


@pytest.mark.slow
@every_spec
def test_what_is_sent_in_a_period_does_not_see_the_value(name: str) -> None:
    mechanism = mechanism_of(name)
    laws = [refreshed(chain_law(mechanism.chain, each)) for each in encodings(mechanism)]
    assert all(law == laws[0] for law in laws)


@pytest.mark.parametrize(
    ("name", "ladder"),
    [("grr2", LADDERS["three"]), ("oue2", LADDERS["three"][1:]), ("sue3", LADDERS["three"][1:])],
)
def test_linked_periods_cost_no_more_than_the_permanent_response(
    name: str, ladder: tuple[int, ...]
) -> None:
    """Three periods, each with all that it sends; one by itself costs its strongest level."""
    mechanism = mechanism_of(name, ladder)
    chain = mechanism.chain  # type: ignore[attr-defined]
    laws = [chain_law(chain, each) for each in encodings(mechanism)]
    given = refreshed(laws[0])
    sent = list(next(iter(given.values())))
    permanent = [level_law(law, -1) for law in laws]
    worst = {}
    for periods in (1, 3):
        worst[periods] = Fraction(1)
        for seen in itertools.combinations_with_replacement(sent, periods):
            likely = {
                last: math.prod((given[last][outputs] for outputs in seen), start=Fraction(1))
                for last in given
            }
            joint = [sum(law[last,] * likely[last] for last in likely) for law in permanent]
            worst[periods] = max(worst[periods], max(joint) / min(joint))
    period, lifetime = (mechanism.certified(mechanism.levels - back) for back in (2, 1))
    assert loss_micro(worst[1]) == period
    # Far above one period's, so that the lifetime is what has to be charged.
    assert exp_micro(period)[1] < worst[3] <= exp_micro(lifetime)[0]


@pytest.mark.parametrize("symbol", [0, 1])
def test_symbols_are_refreshed_by_their_law(symbol: int) -> None:
    chain = coarse_symbols()
    expected = refreshed(chain_law(chain, 0))[symbol]
    law = exact_law(lambda source: tuple(chain.weaker(symbol, HighBits(source, 3))))
    assert law == expected


def test_the_last_level_alone_is_the_last_of_a_chain() -> None:
    mechanism = mechanism_of("grr5")
    for seed in range(20):
        last = mechanism.draw_last(3, bytes(16), bytes(16), SeededSource(seed))
        assert last == mechanism.draw(3, bytes(16), bytes(16), SeededSource(seed))[-1]


@pytest.mark.parametrize("name", SPECS)
def test_constant_is_for_mechanisms_without_public_coins(name: str) -> None:
    """Whether counting a report needs its ids says whether it depends on a coin."""
    mechanism = mechanism_of(name)
    n = 600
    payloads = np.resize(np.arange(2, dtype=np.uint8), (n, mechanism.payload_width))
    groups = np.zeros(n, dtype=np.int64)
    ids = np.random.default_rng(SEED).integers(0, 2**64, (2, n, 2), dtype=np.uint64)
    counts = [mechanism.accumulate(payloads, each, each, groups, 1) for each in ids]
    assert supports_constant(SPECS[name]) == np.array_equal(*counts)


def test_unknown_mechanisms_are_not_taken_to_be_coinless() -> None:
    with pytest.raises(ParameterError, match="must be one of"):
        supports_constant({"name": "new"})
