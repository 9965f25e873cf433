"""Reports in a universe made for the tests: to columns, to counts, and at random."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
from step_plans import DAY, HOUR, PERIOD, registry
from step_reference import Row, Rules, count_vectors

from pipelines.aggregation.audit import audit
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.snapshot import StateSnapshot
from pipelines.aggregation.state import State

REGISTRY = registry()
RULES = Rules(REGISTRY)
METRICS = REGISTRY.metrics
SHARD, NUMBER = 3, -2
START = NUMBER * PERIOD
KEY = bytes(range(1, 17))


def identifier(number: int) -> list[int]:
    """Return an id whose halves differ from those of other numbers, or only one of them."""
    return [number // 2 * 0x9E3779B97F4A7C15 % 2**64, number]


def rows_of(reports: list[Row]) -> Rows:
    widths = {m.id: m.metric.mechanism.payload_width for m in METRICS}
    payload = np.zeros((len(reports), max(widths.values())), dtype=np.uint8)
    for at, report in enumerate(reports):
        payload[at, : len(report.payload)] = list(report.payload)
    return Rows(
        shard=SHARD,
        period=NUMBER,
        widths=widths,
        metric=np.array([r.metric for r in reports], dtype=np.uint16),
        level=np.array([r.level for r in reports], dtype=np.uint8),
        pseudonym=np.array([identifier(r.pseudonym) for r in reports], np.uint64).reshape(-1, 2),
        chain=np.array([identifier(r.chain) for r in reports], dtype=np.uint64).reshape(-1, 2),
        event=np.array([r.event for r in reports], dtype=np.int64),
        append=np.array([r.append for r in reports], dtype=np.int64),
        countable=np.array([r.countable for r in reports], dtype=np.bool_),
        cell=np.array([r.cell for r in reports], dtype=np.uint8),
        payload=payload,
    )


def made_rows(n: int, **columns: Any) -> Rows:
    """Return rows of the metric 0; columns that are not given have zeros, and all may count."""
    made = {
        "shard": 0,
        "period": 0,
        "widths": {0: 1},
        "metric": np.zeros(n, np.uint16),
        "level": np.zeros(n, np.uint8),
        "pseudonym": np.zeros((n, 2), np.uint64),
        "chain": np.zeros((n, 2), np.uint64),
        "event": np.zeros(n, np.int64),
        "append": np.zeros(n, np.int64),
        "countable": np.ones(n, np.bool_),
        "cell": np.zeros(n, np.uint8),
        "payload": np.zeros((n, 1), np.uint8),
    }
    return Rows(**(made | columns))


def reports_of(rows: Rows) -> list[Row]:
    return [
        Row(
            int(rows.pseudonym[at, 1]),
            int(rows.chain[at, 1]),
            metric := int(rows.metric[at]),
            int(rows.event[at]),
            int(rows.level[at]),
            rows.payload[at, : rows.widths[metric]].tobytes(),
            bool(rows.countable[at]),
            int(rows.append[at]),
            int(rows.cell[at]),
        )
        for at in range(len(rows))
    ]


def counts(reports: Counter, pairs: Counter | None = None) -> dict:
    """Return the count vectors of reports and pairs of levels."""
    return plain(count_vectors(reports, pairs or Counter(), REGISTRY, identifier))


def plain(vectors: dict) -> dict:
    return {key: vector.tolist() for key, vector in vectors.items() if vector.any()}


def add(total: dict, more: dict) -> None:
    for key, vector in more.items():
        total[key] = total.get(key, 0) + vector


def audited(seen: State) -> dict:
    columns = audit(seen)
    return {
        int(pseudonym): (int(chains), int(accepted), int(observed), int(reason))
        for (_, pseudonym), chains, accepted, observed, reason in zip(
            columns.pseudonym,
            columns.chains,
            columns.accepted,
            columns.observed,
            columns.reason,
            strict=True,
        )
    }


def cut(rows: list, cuts: list[int]) -> list[list]:
    places = sorted(place % (len(rows) + 1) for place in cuts)
    return [rows[a:b] for a, b in itertools.pairwise([0, *places, len(rows)])]


def random_rows(seed: int, size: int, pseudonyms: int, honest: float) -> list[Row]:
    """Rows of a larger universe: honest chains with some contradictions among them."""
    draw = random.Random(seed)
    rows = []
    for _ in range(size):
        chain = draw.randrange(4 * pseudonyms)
        own = random.Random(f"{seed} {chain}")
        metric = own.randrange(len(METRICS))
        event = START + own.randrange(168) * HOUR
        if draw.random() > honest:
            metric = draw.randrange(len(METRICS))
        mechanism = METRICS[metric].metric.mechanism
        level = draw.randrange(mechanism.levels)
        flaw = 0 if draw.random() < honest else 1
        payload = bytes([(chain + level + flaw) % 2]) + bytes(mechanism.payload_width - 1)
        rows.append(
            Row(
                chain % pseudonyms if draw.random() < honest else draw.randrange(pseudonyms),
                chain,
                metric,
                event + (DAY if draw.random() > honest and event < START + 6 * DAY else 0),
                level,
                payload,
                draw.random() < 0.9,
                draw.randrange(1000),
                # As its cell an honest chain has one of its own.
                own.randrange(64) if draw.random() < honest else draw.randrange(64),
            )
        )
    return rows


def canonical(state: State) -> tuple[object, ...]:
    """Return what all states of one set of rows share, and no others have.

    Which of conflicting rows became the entry depends on their order, so an entry and its conflicts
    are taken together: the set of rows that the state has seen of a chain.
    """
    stored = StateSnapshot.from_bytes(state.to_bytes())
    table: dict[str, list[dict[str, Any]]] = {}
    for name in ("pseudonyms", "entries", "conflicts"):
        own = {c: values.tolist() for (t, c), values in stored.columns.items() if t == name}
        rows_of_table = zip(*own.values(), strict=True)
        table[name] = [dict(zip(own, row, strict=True)) for row in rows_of_table]
    payload = {
        int(entry): bytes(row)
        for width, entries in stored.pooled().items()
        for entry, row in zip(entries, stored.payloads[width], strict=True)
    }
    rows: dict[int, set[tuple[object, ...]]] = defaultdict(set)
    for number, each in enumerate(table["entries"]):
        binding = (stored.metrics[each["metric"]], each["event"], each["cell"])
        for level, tag in enumerate(each["tags"]):
            if each["seen"] >> level & 1:
                rows[number].add((*binding, level, tag, bool(each["countable"] >> level & 1)))
    for each in table["conflicts"]:
        binding = (stored.metrics[each["metric"]], each["event"], each["cell"])
        rows[each["entry"]].add((*binding, each["level"], each["tag"], each["countable"]))
    names = [(each["low"], each["high"]) for each in table["pseudonyms"]]
    chains = {
        (names[each["pseudonym"]], each["low"], each["high"]): (
            *(rows[number], each["append"], counted, payload.get(number)),
        )
        for number, (each, counted) in enumerate(
            zip(table["entries"], stored.counted.tolist(), strict=True)
        )
    }
    reasons = {name: each["reason"] for name, each in zip(names, table["pseudonyms"], strict=True)}
    return stored.shard, stored.period, stored.key, stored.metrics, reasons, chains
