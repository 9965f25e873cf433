"""Devices' measures: the answer of each period, as sequences of calls, and the law of responses.

``docs/spec/protocol.md`` describes the file. The plans are such that a payload is the answer
itself, but for responses, which follow from the random bits of their steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from mechanisms.chains.symbols import SymbolChain
from sotto.plan.compiled import CompiledPlan
from tests.conformance import files, scenarios
from tests.conformance.draws import samplers


def _laws() -> Iterator[dict[str, Any]]:
    """Yield the chance of *yes* of the response and of each report drawn from it, as the SDK's."""
    chain = CompiledPlan.from_json(files.plan("used")).metric("opened").mechanism.chain
    assert isinstance(chain, SymbolChain)
    levels = range(chain.levels)
    for used in (False, True):
        chances = [chain.law(used, level)[1] for level in levels]
        scaled = [
            chance * (1 << 64 * (chain.levels - level)) for level, chance in enumerate(chances)
        ]
        assert all(each.denominator == 1 for each in scaled)
        yield {"metric": "opened", "used": used, "yes": [str(each) for each in scaled]}


def _law_of_page(used: bool) -> list[str]:
    """Return the same by the integers of ``samplers.json`` alone."""
    yes, found = Fraction(used), []
    for draw in samplers("used")["opened"]["chain"]["draws"]:
        yes = yes * int(draw["keep"]) + (1 - yes) * int(draw["other"])
        yes /= 1 << 64
        found.insert(0, str(yes * (1 << 64 * (len(found) + 1))))
    return found


def write() -> None:
    files.write("measures", scenarios=scenarios.made("measures"), laws=list(_laws()))


def check() -> Iterator[str | None]:
    yield from scenarios.check("measures")
    laws = files.read("measures")["laws"]
    for each, ours in zip(laws, _laws(), strict=True):
        good = each == ours and each["yes"] == _law_of_page(each["used"])
        yield None if good else f"the law of {json.dumps(each)} is {json.dumps(ours)}"
