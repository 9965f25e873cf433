"""Neighbouring histories: the same recordings with other values have the same outcomes.

Two clients share a file, as two processes would, while consent, ceilings, quota, period and clock
change under them. Every history (``histories.txt``) is played with each kind of value that a type
accepts; outcomes and what is stored, but for the payloads, must be those of ordinary values.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import os
import random
from enum import StrEnum
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from device_plans import DAY, START, threadless
from plan_texts import plan_head
from scenario_plans import duration

from clientsdk import Outcome, Settings, decisions, draws
from clientsdk.store.database import READ
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import StoreError, ValueTypeError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import Ceilings

HISTORIES = Path(__file__).with_name("histories.txt")
HEAD = plan_head("trial", (900, 9000), expires="2026-01-29")
TYPES = {
    "category": "type: category, domain: [a, b, c], outside: other",
    "maybe": "type: category, domain: [a, b, c], outside: other, missing: true",
    "boolean": "type: boolean, missing: true",
    "string": "type: string, bits: 64, hashes: 2, cohorts: 4, missing: true",
    "grade": "type: ordinal, values: [bad, good], outside: missing, missing: true",
    "point": "type: ordinal, range: [0, 10], points: 5, outside: clip, missing: true",
    "number": "type: number, range: [0, 10], outside: clip",
    "size": "type: number, range: [0, 10], outside: clip, missing: true",
    "bits": "type: number, range: [0, 10], outside: clip, missing: true,"
    " mechanism: {bit_aware: sampled, bits: 8}",
    "survey": "type: survey, question: Was it useful",
    "vector": "type: vector, range: [0, 10], dimensions: 2, outside: clip",
    "item": "type: top_item, domain: [a, b], outside: other, clip: 3",
}
KINDS = {
    "first": "{once: first}",
    "every": "{every: 3}",
    "reservoir": "{once: reservoir}",
    "constant": "{constant: true}",
}
#: Plans refuse these: their reports have public coins, or they count.
IMPOSSIBLE = {
    *((each, "constant") for each in ("string", "bits", "vector", "item")),
    ("item", "every"),
    ("item", "reservoir"),
}


class Word(str):
    __slots__ = ()


class Whole(int):
    pass


class Length(float):
    pass


class Letter(StrEnum):
    A = "a"
    Z = "zebra"


def _values():
    words = ["a", "zebra", "", "\ud800", "x" * 3000, Word("b"), Letter.A, Letter.Z]
    numbers = [3.0, 3, -math.inf, math.nan, 10**400, Whole(7), Length(2.5), Fraction(1, 3)]
    vectors = [[1.0, 2.0], (1, 2), [math.nan, 1e300], (Whole(1), Length(2)), [Fraction(1, 3), 0]]
    words.append(np.str_("b"))
    numbers += [np.float64(3), np.float32(1e30), np.int8(-3), np.float16("nan")]
    vectors += [np.array([1.0, 2.0]), np.array([1, 2], np.int8)]
    return {
        **dict.fromkeys(("category", "item"), words),
        **{each: [*words, None] for each in ("maybe", "string", "grade")},
        **{each: [*numbers, None] for each in ("point", "size", "bits")},
        "boolean": [True, False, None],
        "number": numbers,
        "survey": [True, False],
        "vector": vectors,
    }


VALUES = _values()
NAMES = [f"{each}.{kind}" for each in TYPES for kind in KINDS if (each, kind) not in IMPOSSIBLE]


@cache
def _plan(panel=1):
    lines = []
    for name in NAMES:
        each, kind = name.split(".")
        after = "7d" if kind == "reservoir" else "0ms"
        ladder = f"[{{epsilon: 1, after: {after}}}, {{epsilon: 2, after: {after}}}]"
        lines.append(
            f"  {name}: {{{TYPES[each]}, window: 28d, repeat: {KINDS[kind]}, ladder: {ladder},"
            f" panel: {'1' if panel == 1 else f'1/{panel}'}}}\n"
        )
    return parse_plan(HEAD + "".join(lines)).compile()


#: Enough for a part of the metrics.
LOW = Ceilings(30_000_000, 9_000_000_000)


class World:
    """Two clients on one file, a clock, a monotonic clock, and how full the quota is."""

    def __init__(self, monkeypatch, folder, choose, history):
        self.choose, self.outcomes, self.seed = choose, [], 0
        self.plan = _plan(3 if "turn comes" in history.title else 1)
        self.clock, self.moment, self.used = FakeClock(START + DAY), 1000.0, 0
        self.state = None if "memory" in history.title else folder / f"{next(_numbers)}.db"
        for module in ("client", "store.store"):
            monkeypatch.setattr(f"clientsdk.{module}.monotonic", lambda: self.moment)
        monkeypatch.setattr("clientsdk.store.outbox._size", lambda connection: self.used)
        monkeypatch.setattr("clientsdk.draws.replaces", lambda source, seen: seen % 2 == 1)
        self.here = self.open()
        self.there = self.here if self.state is None else self.open()

    def open(self, **options):
        self.seed += 1
        return SeededClient(
            self.plan, seed=self.seed, state=self.state, clock=self.clock, consent=False, **options
        )

    def record(self, client, times=1):
        for _ in range(times):
            for name in NAMES:
                number = len(self.outcomes)
                values = VALUES[name.partition(".")[0]]
                value = values[self.choose(number, len(values))]
                self.outcomes.append((number, name, client.record(name, value)))

    def step(self, text):
        """Make a step of ``histories.txt``: ``record 2``, ``there: withdraw``."""
        who, _, rest = text.rpartition(": ")
        client = self.there if who else self.here
        verb, *words = rest.split()
        if verb == "record":
            self.record(client, *map(int, words))
        elif verb == "few":
            for name in NAMES[:4]:
                self.outcomes.append(client.record(name, VALUES[name.partition(".")[0]][0]))
        elif verb == "busy":
            with client._store.transaction(READ):
                self.record(client)
        elif verb == "agree":
            client.give_consent(again=bool(words))
        elif verb == "renew":
            client.renew_consent(LOW if words == ["low"] else None)
        elif verb == "lower":
            self.open(ceilings=LOW).close()
        elif verb == "off":
            self.here = self.open(settings=Settings(disabled=True))
        elif verb == "wait":
            self.moment += float(words[0])
        elif verb in ("on", "time"):
            begin = self.clock.now if verb == "on" else START
            self.clock.now = begin + duration(" ".join(words))
        elif verb == "outbox":
            self.fill(1 << 40 if words == ["full"] else 0)
        else:
            getattr(client, {"withdraw": "withdraw_consent"}.get(verb, verb))()

    def fill(self, used):
        self.used = used
        for each in (self.here, self.there):
            each._store.outbox.room = 0

    def stored(self):
        """All that is in the store, without identifiers, jitter and payloads."""
        queries = (
            "SELECT period, due - jitter, plan, metric, event, charged, delivered,"
            " length(payloads) FROM chain ORDER BY metric, event",
            "SELECT * FROM ledger ORDER BY period",
            "SELECT tally, length(chain), cost FROM reservoir ORDER BY tally",
            "SELECT tally, cost, length(response) FROM permanent ORDER BY tally",
            "SELECT * FROM degraded ORDER BY period",
            "SELECT period, tally, length(holder), cost, last FROM counting ORDER BY period, tally",
        )
        with self.here._store.transaction(READ) as connection:
            return [connection.execute(query).fetchall() for query in queries]


_numbers = itertools.count()


class History(NamedTuple):
    """Steps, and the outcomes that they must have shown for the comparison to say anything."""

    title: str
    outcomes: set[str]
    steps: list[str]


def _histories():
    for part in HISTORIES.read_text("utf-8").split("\n\n")[1:]:
        head, *steps = part.strip().splitlines()
        title, _, outcomes = head.partition(" -> ")
        yield History(title, {*outcomes.split()}, [each.strip() for each in steps])


def mixed(seed):
    rng = random.Random(seed)
    drawn: dict[int, float] = {}
    return lambda number, size: int(drawn.setdefault(number, rng.random()) * size)


def every_kind():
    """The ordinary value always; each kind by turns, from several beginnings; and any mixture."""
    yield lambda number, size: 0
    for which in range(4):
        yield lambda number, size, which=which: (number // len(NAMES) + 3 * which + 1) % size
    yield from map(mixed, range(3))


def play(monkeypatch, folder, history, choose):
    world = World(monkeypatch, folder, choose, history)
    for step in history.steps:
        world.step(step)
    try:
        stored = world.stored()
    except StoreError:
        world.here = world.open()
        stored = world.stored()
    return world.outcomes, stored


@pytest.mark.parametrize("history", [*_histories()], ids=lambda history: history.title)
@pytest.mark.slow
def test_outcomes_and_what_is_stored_do_not_depend_on_values(monkeypatch, tmp_path, history):
    ordinary, *others = every_kind()
    outcomes, stored = play(monkeypatch, tmp_path, history, ordinary)
    assert {each[-1] for each in outcomes if isinstance(each, tuple)} >= history.outcomes
    for choose in others:
        found, there = play(monkeypatch, tmp_path, history, choose)
        differing = [pair for pair in zip(outcomes, found, strict=True) if pair[0] != pair[1]]
        assert differing == []
        assert there == stored


@cache
def _many_levels(name):
    levels = ", ".join(f"{{epsilon: 0.{level}, after: 0ms}}" for level in range(2, 9))
    line = f"  x: {{{TYPES[name]}, window: 28d, repeat: {{every: 4000}}, ladder: [{levels}]}}\n"
    return parse_plan(HEAD.replace("{period: 900", "{period: 4000") + line).compile()


@pytest.mark.parametrize("each", [name for name in TYPES if name != "item"])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_nor_do_outcomes_where_the_system_stops_to_give_randomness(monkeypatch, each, failing):
    """At a later call than the first of a recording, of which mechanisms take as many as they need.

    Some need more for one value than for another, or for one output than for another.
    """
    here = threadless(_many_levels(each), clock=FakeClock(START + DAY))
    here.give_consent()
    real, calls = os.urandom, itertools.count(1)

    def flaky(size):
        if next(calls) >= failing:
            raise OSError(5, "no entropy")
        return real(size)

    monkeypatch.setattr(draws, "urandom", flaky)
    monkeypatch.setattr(os, "urandom", flaky)
    outcomes = set()
    for value in VALUES[each]:
        for _ in range(25):
            calls = itertools.count(1)
            outcomes.add(here.record("x", value))
    assert outcomes == {Outcome.STORE_FULL if failing == 1 else Outcome.ACCEPTED}


def test_every_type_and_every_way_to_repeat_it_is_played():
    assert {metric.type for metric in _plan().metrics} >= {
        "category", "boolean", "string", "ordinal", "number", "survey", "vector", "top_item"
    }  # fmt: skip
    assert {metric.kind for metric in _plan().metrics} == set(KINDS)


# That it is so by construction.


def functions(module):
    found = ast.walk(ast.parse(inspect.getsource(module)))
    return [each for each in found if isinstance(each, ast.FunctionDef)]


def test_what_decides_receives_neither_a_value_nor_a_symbol():
    """Only what is named here: of no other type and no other name may a parameter be."""
    allowed = {
        "self": None,
        "connection": "Connection",
        "terms": "RecordingTerms",
        "metric": "CompiledMetric",
        "plan": "CompiledPlan",
        "store": "Store",
        "source": "Source",
        "counter": "ItemCounter",
        "outcome": "Outcome",
        **dict.fromkeys(("now", "cost", "lifetime"), "int"),
        # Whether the file may be looked at for another process's consent.
        "look": "bool",
    }
    for function in functions(decisions):
        given = function.args
        assert (given.vararg, given.kwarg, given.posonlyargs) == (None, None, [])
        for each in given.args + given.kwonlyargs:
            annotation = None if each.annotation is None else ast.unparse(each.annotation)
            assert allowed[each.arg] == annotation, (function.name, each.arg)
    names = {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(ast.parse(inspect.getsource(decisions)))
        if isinstance(each, ast.Attribute | ast.Name)
    }
    assert names.isdisjoint({"Symbol", "encode", "draw", "draw_last", "symbol", "value"})


def test_the_type_is_checked_before_anything_else(monkeypatch, tmp_path):
    """Also where the store, the clock or the period would have been looked at first."""
    asked = []

    class Asked(FakeClock):
        def __call__(self):
            asked.append(self)
            return super().__call__()

    device = SeededClient(_plan(), seed=1, state=tmp_path / "device.db", clock=Asked(START))
    device._store.database.connection.set_trace_callback(asked.append)
    asked.clear()
    for name in NAMES:
        with pytest.raises(ValueTypeError):
            device.record(name, b"bytes")
    assert asked == []
    assert device.stats().outcomes == {}


def test_a_number_that_is_none_after_all_is_of_the_wrong_type():
    class Broken(float):
        def __float__(self):
            raise ArithmeticError("it was 7.123456789012345")

    device = SeededClient(_plan(), seed=1)
    with pytest.raises(ValueTypeError, match="float") as caught:
        device.record("number.first", Broken(7.123456789012345))
    assert "7.1234" not in str(caught.value)
    assert caught.value.__context__ is None
