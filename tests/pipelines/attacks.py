"""Devices that lie, and honest ones: what they send, through the real step to results.

An attack is a function that changes what some devices would send if they were honest. All devices
record one value of each metric, whose levels all arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from plan_texts import plan_head
from step_universe import made_rows

from mechanisms.arrays import Bytes, Words
from mechanisms.base import Mechanism
from mechanisms.category.subset_selection import SubsetSelection
from mechanisms.randomness import Source
from mechanisms.testing import SeededSource
from pipelines.aggregation.counts import WindowCounts
from pipelines.aggregation.result_rows import rows_of_windows
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import step_rows
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry

_DAY = 86_400_000
_KEY = bytes(range(16))
#: Strings of which one is the target of attacks.
STRINGS = (b"target", *(b"host %d" % number for number in range(12)))

_METRICS = """\
  theme: {{type: category, domain: [{four}], outside: c0, mechanism: grr, <<: &common
    {{window: 28d, repeat: {{once: first}}, ladder: [
      {{epsilon: 0.5}}, {{epsilon: 1, after: 1d}}, {{epsilon: 2, after: 7d}}]}}}}
  page: {{type: category, domain: [{forty}], outside: c0, mechanism: oue, <<: *common}}
  font: {{type: category, domain: [{forty}], outside: c0, mechanism: subset, <<: *common}}
  city: {{type: category, domain: [{many}], outside: c0, mechanism: local_hashing, <<: *common}}
  startup: {{type: number, range: [0, 1], outside: clip, missing: true, mechanism: threshold,
    <<: *common}}
  size: {{type: number, range: [0, 1], outside: clip, mechanism: {{bit_aware: sampled, bits: 8}},
    <<: *common}}
  host: {{type: string, bits: 128, hashes: 2, cohorts: 16, mechanism: rappor, <<: *common}}
"""


@cache
def plan() -> CompiledPlan:
    """Return a plan with a metric of every kind of mechanism, at the levels 0.5, 1 and 2."""
    domains = {
        name: ", ".join(f"c{value}" for value in range(size))
        for name, size in (("four", 4), ("forty", 40), ("many", 300))
    }
    head = plan_head("attacked", (100, 6400), collector="attacked.example", period="28d")
    return parse_plan(head + _METRICS.format(**domains)).compile()


@dataclass
class Draws:
    """Reports that some devices are about to send of a metric; an attack changes them."""

    mechanism: Mechanism
    values: Any  #: n values
    target: Any  #: the value that an attack promotes
    pseudonyms: Words  #: (n, 2)
    chains: Words  #: (n, 2)
    payloads: Bytes  #: (n, levels, width)
    source: Source

    def again(self) -> Bytes:
        """Return what the same devices send if they draw once more."""
        return self.mechanism.randomize(self.values, self.chains, self.pseudonyms, self.source)


Attack: TypeAlias = Callable[[Draws], None]


def honest(draws: Draws) -> None:
    """Change nothing."""


def repeat(draws: Draws) -> None:
    """Answer every level as the strongest one."""
    draws.payloads[:] = draws.payloads[:, -1:]


def fresh(draws: Draws) -> None:
    """Draw every level anew from the value."""
    for level in range(draws.mechanism.levels):
        draws.payloads[:, level] = draws.again()[:, level]


def promote(draws: Draws) -> None:
    """Say at every level what the target is, without any randomization (maximal gain)."""
    mechanism, n = draws.mechanism, len(draws.payloads)
    width = mechanism.payload_width
    inputs = mechanism.encode_many([draws.target] * n, draws.chains, draws.pseudonyms, draws.source)
    if isinstance(mechanism, SubsetSelection):
        # A set has a fixed size: the target, and the next categories.
        chosen = np.arange(draws.target, draws.target + mechanism.subset_size)
        bits = np.zeros((n, 8 * width), dtype=np.uint8)
        bits[:, chosen % mechanism.domain_size] = 1
        packed = np.packbits(bits, axis=1, bitorder="little")
    else:
        packed = np.ascontiguousarray(inputs).astype("<u8").view(np.uint8).reshape(n, -1)
    draws.payloads[:] = packed[:, None, :width]


def choose_coins(draws: Draws) -> None:
    """Draw ids until their coin is the first one, and answer yes at every level."""
    n = len(draws.chains)
    found: list[NDArray[np.uint64]] = []
    while sum(map(len, found)) < n:
        ids = draws.source.words(1 << 16).reshape(-1, 2)
        coins = draws.mechanism.strata_of(ids, ids)
        assert coins is not None
        found.append(ids[coins == 0])
    ids = np.concatenate(found)[:n]
    if draws.mechanism.coins == "pseudonym":
        draws.pseudonyms[:] = ids
    else:
        draws.chains[:] = ids
    draws.payloads[:] = draws.again()


def set_all_bits(draws: Draws) -> None:
    """Set all bits at every level."""
    width = draws.mechanism.count_length // draws.mechanism.strata - 1
    ones = np.packbits(np.ones(width, dtype=np.uint8), bitorder="little")
    draws.payloads[:] = ones


def lie(draws: Draws) -> None:
    """Record the target and follow the protocol: nobody can tell."""
    draws.values = np.repeat(np.array([draws.target]), len(draws.payloads)).tolist()
    draws.payloads[:] = draws.again()


def values_of(metric: CompiledMetric, n: int, draw: np.random.Generator) -> tuple[Any, Any]:
    """Return honest values of a metric, and the value that attacks promote: a rare one."""
    if metric.type == "string":
        return [STRINGS[1 + place] for place in draw.integers(0, 12, n).tolist()], STRINGS[0]
    if metric.type == "number":
        found = draw.beta(2, 5, n)
        return np.where(draw.random(n) < 0.1, np.nan, found) if metric.missing else found, 1.0
    size = len(metric.labels)
    return (draw.random(n) ** 2 * (size - 1)).astype(np.int64), size - 1


def rows_of(
    metric: CompiledMetric, number: int, n: int, share: float, attack: Attack, seed: int
) -> Rows:
    """Return all reports of n devices, of which a share attacks, in random order."""
    draw, source = np.random.default_rng(seed), SeededSource(seed)
    mechanism = metric.mechanism
    values, target = values_of(metric, n, draw)
    ids = source.words(4 * n).reshape(n, 4)
    pseudonyms, chains = ids[:, :2].copy(), ids[:, 2:].copy()
    payloads = mechanism.randomize(values, chains, pseudonyms, source)
    bad = slice(0, round(share * n))
    if bad.stop:
        draws = Draws(
            mechanism, values[bad], target, pseudonyms[bad], chains[bad], payloads[bad], source
        )
        attack(draws)
    levels = mechanism.levels
    event = np.repeat(draw.integers(0, 28 * 24, n) * 3_600_000, levels)
    delays = np.tile(np.array(metric.delays), n)
    rows = made_rows(
        n * levels,
        widths={number: payloads.shape[2]},
        metric=np.full(n * levels, number, dtype=np.uint16),
        level=np.tile(np.arange(levels, dtype=np.uint8), n),
        pseudonym=np.repeat(pseudonyms, levels, axis=0),
        chain=np.repeat(chains, levels, axis=0),
        event=event,
        append=event + delays + 3_600_000,
        payload=payloads.reshape(n * levels, -1),
    )
    return rows.select(draw.permutation(n * levels))


def results(
    name: str, n: int, share: float, attack: Attack, seed: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a window's row, its alarms among it, and its estimates, of n devices' reports."""
    compiled = plan()
    registry = Registry([compiled])
    metric = compiled.metric(name)
    (number,) = (each.id for each in registry.metrics if each.metric.name == name)
    state = State(registry, 0, 0, _KEY)
    stepped = step_rows(state, [rows_of(metric, number, n, share, attack, seed)])
    assert not stepped.rejects, "every report counts"
    ((key, counts),) = stepped.changes.items()
    strings = {compiled.fingerprint: {name: [each.decode() for each in STRINGS]}}
    (row,), estimates = rows_of_windows([(key, WindowCounts(1, counts))], registry, strings)
    return row, estimates


def alarms(name: str, n: int, share: float, attack: Attack, seed: int) -> list[str]:
    """Return the kinds of alarms about a window of n devices of which a share attacks."""
    row, _ = results(name, n, share, attack, seed)
    return [each["kind"] for each in row["alarms"]]
