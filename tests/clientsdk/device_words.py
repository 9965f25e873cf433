"""Words for what comes of a device's steps, as scenarios write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from device_plans import START, WEEK
from scenario_plans import epsilon

from clientsdk.ledger import ALL_METRICS, Ledger, LedgerPeriod, PendingChain
from clientsdk.outcomes import FlushResult


def runs(said: list[str]) -> str:
    """Write equal texts once, each with its number unless there is one or all are equal."""
    if len(set(said)) == 1:
        return said[0]
    runs = [(each, len(list(same))) for each, same in groupby(said)]
    return ", ".join(each if number == 1 else f"{number} {each}" for each, number in runs)


def of_flush(result: FlushResult) -> str:
    lapses = {name: number for name, number in result.lapses._asdict().items() if number}
    numbers = {"sent": result.sent, "remaining": result.remaining, **lapses}
    said = [f"{name} {n}" for name, n in numbers.items() if n or name == "sent"]
    return ", ".join(said + ([] if result.error is None else [type(result.error).__name__]))


def _amounts(values: Iterable[int]) -> str:
    return " ".join(map(epsilon, values)) or "none"


def names_of(values: Iterable[str]) -> str:
    return " ".join(sorted(each.partition("/")[2] for each in values)) or "nothing"


def _recordings(period: LedgerPeriod) -> str:
    said = period.recordings.items()
    return " ".join(f"{'all' if n == ALL_METRICS else n.partition('/')[2]} {k}" for n, k in said)


def _chain(chain: PendingChain) -> str:
    """Levels charged, delivered and in all, and what is spent and reserved."""
    numbers = f"{chain.charged} {chain.delivered} {chain.levels}"
    return f"{names_of([chain.metric])} {numbers} {_amounts([chain.spent, chain.reserved])}"


def _weeks(numbers: Iterable[int]) -> str:
    return " ".join(str(number - START // WEEK) for number in numbers) or "none"


#: Parts of a ledger that ``ledger`` can name; amounts are epsilons, periods weeks since the start.
LEDGER: dict[str, Callable[[Ledger], str]] = {
    "reserved": lambda ledger: epsilon(ledger.reserved),
    "spent": lambda ledger: epsilon(ledger.spent),
    "consent": lambda ledger: ledger.consent.value,
    "carried": lambda ledger: epsilon(ledger.carried),
    "ceilings": lambda ledger: _amounts([ledger.ceilings.period, ledger.ceilings.lifetime]),
    "damaged": lambda ledger: str(ledger.damaged),
    "restored": lambda ledger: str(ledger.restored),
    "period": lambda ledger: _weeks([ledger.period]),
    "periods": lambda ledger: _weeks(each.number for each in ledger.periods),
    "reserved-each": lambda ledger: _amounts(each.reserved for each in ledger.periods),
    "spent-each": lambda ledger: _amounts(each.spent for each in ledger.periods),
    "chains": lambda ledger: "; ".join(map(_chain, ledger.pending)) or "none",
    "named": lambda ledger: _weeks(
        e.number for e in ledger.periods if len(e.pseudonym or "") == 32
    ),
    "waiting": lambda ledger: names_of(each.metric for each in ledger.pending),
    "recorded": lambda ledger: "; ".join(map(_recordings, ledger.periods)) or "nothing",
    "permanent": lambda ledger: _amounts(each.cost for each in ledger.permanent),
    "groups": lambda ledger: " ".join(f"{n} {said.value}" for n, said in ledger.groups) or "none",
    "cells": lambda ledger: " ".join(each.segment for each in ledger.pending) or "none",
    "signing": lambda ledger: _weeks(n.number for n in ledger.periods if n.signed_pseudonym),
    "responses": lambda ledger: str(len(ledger.permanent)),
    "measured": lambda ledger: names_of(each.metric for each in ledger.measured),
    "waiting-each": lambda ledger: _amounts(each.reserved for each in ledger.pending),
    "held": lambda ledger: names_of(each.metric for each in ledger.permanent if each.held),
}
