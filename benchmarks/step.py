"""How fast ``step`` is, what it is slowed down by, and what it keeps.

One shard of 16,000 devices, five metrics of different mechanisms, every chain with three levels
that arrive days apart, 5 % repetitions, a few devices that contradict themselves or exceed their
budget. The clock is the process's own CPU time; of several runs the best is shown. *Counting alone*
adds the same rows up without looking for repetitions, older levels or budgets: what remains of
``step`` if all rows could be trusted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Table, cpu_seconds
from benchmarks.reports import DAY, HOUR, LEVELS, plan, values
from mechanisms.testing import SeededSource
from pipelines.aggregation.audit import totals as audited
from pipelines.aggregation.counts import changes
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import step
from pipelines.aggregation.table import new_key
from sotto.plan.registry import Registry

PERIOD = 28 * DAY
DEVICES = 16_000
CALLS = (10_000, 2_000, 156)
RUNS = 5
SEED = 20_240_501


def stream(plans: Registry) -> Rows:
    """Return what one shard receives in one period, in the order in which it arrives."""
    draw = np.random.default_rng(SEED)
    pseudonyms = draw.integers(0, 2**64, (DEVICES, 2), dtype=np.uint64)
    parts = []
    for registered in plans.metrics:
        # One device in a hundred records each metric once more than it may.
        owners = np.concatenate([np.arange(DEVICES), draw.integers(0, DEVICES, DEVICES // 100)])
        parts.append(_chains(registered.id, plans, pseudonyms[owners], draw))
    rows = Rows.concat(parts)
    repeated = draw.integers(0, len(rows), len(rows) // 20)
    contradicted = draw.integers(0, len(rows), DEVICES // 1000)
    flipped = rows.select(contradicted)
    flipped.payload[:, 0] ^= 1
    rows = Rows.concat([rows, rows.select(repeated), flipped])
    late = draw.integers(0, 2 * DAY, len(rows))
    late[: -repeated.size - contradicted.size] = 0
    arrival = rows.append + late
    return rows.select(np.argsort(arrival, kind="stable"))


def _chains(
    metric: int, plans: Registry, pseudonyms: NDArray[np.uint64], draw: np.random.Generator
) -> Rows:
    """Return all levels of a chain of one metric for each pseudonym."""
    compiled = plans.metrics[metric].metric
    n = len(pseudonyms)
    chains = draw.integers(0, 2**64, (n, 2), dtype=np.uint64)
    payload = compiled.mechanism.randomize(
        values(compiled, draw.random(n)), chains, pseudonyms, SeededSource(metric)
    )
    event = np.repeat(draw.integers(0, PERIOD // HOUR, n) * HOUR, LEVELS)
    delays = np.tile(np.array(compiled.delays), n)
    return Rows(
        shard=0,
        period=0,
        widths={metric: payload.shape[2]},
        metric=np.full(n * LEVELS, metric, dtype=np.uint16),
        level=np.tile(np.arange(LEVELS, dtype=np.uint8), n),
        pseudonym=np.repeat(pseudonyms, LEVELS, axis=0),
        chain=np.repeat(chains, LEVELS, axis=0),
        event=event,
        append=event + delays + HOUR + draw.integers(0, HOUR, n * LEVELS),
        countable=np.ones(n * LEVELS, dtype=np.bool_),
        cell=np.zeros(n * LEVELS, dtype=np.uint8),
        payload=payload.reshape(n * LEVELS, -1),
    )


def main() -> None:
    """Print the table that the README quotes."""
    plans = Registry([plan(PERIOD, 7 * DAY, ceilings="{period: 10, lifetime: 640}")])
    rows = stream(plans)
    key = new_key()
    catalog = State(plans, 0, 0, key).catalog
    print(f"{len(rows):,} rows of {DEVICES:,} devices; best of {RUNS} runs, CPU time")
    table = Table("rows a call", "rows/s", "counting alone, rows/s")
    for size in CALLS:
        calls = [rows.select(slice(at, at + size)) for at in range(0, len(rows), size)]
        nothing = rows.select(slice(0))

        def take(calls: list[Rows] = calls) -> State:
            state = State(plans, 0, 0, key)
            for call in calls:
                state, _, _ = step(state, call)
            return state

        def count(calls: list[Rows] = calls, nothing: Rows = nothing) -> None:
            for call in calls:
                changes(catalog, call, nothing)

        taken, counted = cpu_seconds(take, rounds=RUNS), cpu_seconds(count, rounds=RUNS)
        table.row(size, round(len(rows) / taken), round(len(rows) / counted))
    state = take()
    totals, chains, data = audited(state), state.entries.size, state.to_bytes()
    print(
        f"{chains:,} chains, {totals.pseudonyms:,} pseudonyms, {totals.over_budget:,} over budget, "
        f"{totals.equivocation:,} equivocating"
    )
    print(
        f"{state.nbytes / chains:.1f} B a chain in memory, {len(data) / chains:.1f} B stored "
        f"({len(data) / 1e6:.1f} MB)"
    )
