"""The state of one shard in one budget period: a function of the set of rows seen.

It has three tables. *Pseudonyms* has, for each pseudonym, the epsilon of its counted rows, and why
it is revoked, if it is. *Entries* has one entry for each (pseudonym, chain): the metric, event time
and cell that the chain is bound to, which levels were seen and which of these are countable, a
32-bit tag of the payload of each level seen, and the payload of the level that counts. *Conflicts*
has every further row that contradicts an entry, with another binding or another payload at a level,
each once; its pseudonym is revoked. Which of two conflicting rows became the entry and which the
conflict depends on the order of arrival. The set of the two does not, and nothing is computed from
more than that set.

A payload of up to four bytes is its own tag, so the level's tag is the payload that counts. A wider
one lies in a pool of its width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.rows import Rows
from pipelines.aggregation.snapshot import LAYOUT, StateSnapshot, StoredMetric
from pipelines.aggregation.table import EXACT_BYTES, KEY_BYTES, HashTable, Pool, payload_tags
from sotto.errors import FormatError, ParameterError, PlanError
from sotto.plan.registry import Registry

_PSEUDONYM = {"low": "u8", "high": "u8"}
_PSEUDONYM_VALUES = {"accepted": "i8", "reason": "u1"}
_ENTRY = {"pseudonym": "u4", "low": "u8", "high": "u8"}
_ENTRY_VALUES = {
    "event": "i8",
    "append": "i8",
    "slot": "u4",
    "metric": "u2",
    "cell": "u1",
    "seen": "u1",
    "countable": "u1",
    "counted": "u1",
}
_CONFLICT = {"entry": "u4", "metric": "u2", "event": "i8", "level": "u1", "tag": "u4", "cell": "u1"}
_CONFLICT_VALUES = {"countable": "?"}


class Catalog:
    """Columns over the M registered metrics of a deployment; :func:`catalog_of` makes it once.

    ``certified`` ((M, 9) int64): the micro-epsilon of a chain by its newest level, counted from
    one; column 0, for no level, is zero. ``levels`` ((M,) uint8): number of levels. ``windows``
    ((M,) int64): length of the estimation window, ms. ``widths`` ((M,) int64): bytes of a payload.
    ``identities``: plan fingerprint and the metric's index in that plan, which name a metric
    outside of this registry. ``mechanisms``: the objects that count payloads.
    """

    def __init__(self, registry: Registry) -> None:
        metrics = [registered.metric for registered in registry.metrics]
        self.mechanisms = tuple(metric.mechanism for metric in metrics)
        self.certified = np.zeros((len(metrics), 9), dtype=np.int64)
        for row, each in zip(self.certified, self.mechanisms, strict=True):
            row[1 : each.levels + 1] = [each.certified(k) for k in range(each.levels)]
        self.levels = np.array([each.levels for each in self.mechanisms], dtype=np.uint8)
        self.windows = np.array([metric.window for metric in metrics], dtype=np.int64)
        self.widths = np.array([each.payload_width for each in self.mechanisms], dtype=np.int64)
        self.identities = tuple((r.fingerprint, r.metric.index) for r in registry.metrics)

    def widths_of(self, metric: NDArray[np.uint16]) -> dict[int, int]:
        """Return the payload width, bytes, of every metric that occurs, by id."""
        present = np.flatnonzero(np.bincount(metric))
        return dict(zip(present.tolist(), self.widths[present].tolist(), strict=True))

    def wide_rows(self, metric: NDArray[np.uint16]) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Yield each width above 4 bytes that occurs in rows of these metrics, and those rows."""
        for width in sorted({*self.widths_of(metric).values()}):
            if width > EXACT_BYTES:
                yield width, np.flatnonzero(self.widths[metric] == width)

    def shape_of(self, metric: int) -> tuple[int, int]:
        return int(self.levels[metric]), int(self.widths[metric])


catalog_of = lru_cache(maxsize=16)(Catalog)


class State:
    """The state of one shard and budget period; metric ids are the registry's.

    ``key`` is 16 random bytes, the same for a whole deployment; ``budget`` is the micro-epsilon
    above which a pseudonym is revoked from now on. In ``entries``, ``append`` is when the log first
    took the row that counts, ms; ``counted`` is that row's level counted from one, 0 for none;
    ``slot`` is its payload's place in the pool counted from one, 0 for none; ``tags`` has one tag a
    level.
    """

    def __init__(self, registry: Registry, shard: int, period: int, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ParameterError(f"key must have {KEY_BYTES} bytes, not {len(key)}")
        self.registry = registry
        self.budget = registry.budget
        self.catalog = catalog_of(registry)
        self.shard = shard
        self.period = period
        self.key = key
        tags = np.dtype((np.uint32, (max(int(self.catalog.levels.max(initial=0)), 1),)))
        self.pseudonyms = HashTable(key, _PSEUDONYM, _PSEUDONYM_VALUES)
        self.entries = HashTable(key, _ENTRY, {**_ENTRY_VALUES, "tags": tags})
        self.conflicts = HashTable(key, _CONFLICT, _CONFLICT_VALUES)
        wide = {width for width in self.catalog.widths.tolist() if width > EXACT_BYTES}
        self._pools = {width: Pool(width) for width in wide}

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the state holds, including room that is reserved for growth."""
        tables = (self.pseudonyms, self.entries, self.conflicts)
        pools = self._pools.values()
        return sum(table.nbytes for table in tables) + sum(pool.nbytes for pool in pools)

    def tags(self, rows: Rows) -> NDArray[np.uint32]:
        """Return the tag of each row's payload: the payload itself up to four bytes."""
        tags = payload_tags(self.key, rows.payload[:, :EXACT_BYTES])
        for width, at in self.catalog.wide_rows(rows.metric):
            tags[at] = payload_tags(self.key, rows.payload[at, :width])
        return tags

    def counted(self, ids: NDArray[np.intp]) -> Rows:
        """Return the rows that count of the entries ``ids``, each of which has one."""
        entries = self.entries
        metric = entries["metric"][ids]
        level = entries["counted"][ids] - np.uint8(1)
        widths = self.catalog.widths_of(metric)
        widest = max(widths.values(), default=0)
        tags = np.ascontiguousarray(entries["tags"][ids, level], dtype="<u4")
        payload = np.zeros((ids.size, max(widest, EXACT_BYTES)), dtype=np.uint8)
        payload[:, :EXACT_BYTES] = tags.view(np.uint8).reshape(-1, EXACT_BYTES)
        for width, at in self.catalog.wide_rows(metric):
            payload[at, :width] = self._pools[width].rows[entries["slot"][ids[at]] - 1]
        owner = entries["pseudonym"][ids]
        return Rows(
            shard=self.shard,
            period=self.period,
            widths=widths,
            metric=metric,
            level=level,
            pseudonym=_pairs(self.pseudonyms, owner),
            chain=_pairs(entries, ids),
            event=entries["event"][ids],
            append=entries["append"][ids],
            countable=np.ones(ids.size, dtype=np.bool_),
            cell=entries["cell"][ids],
            payload=payload,
        )

    def count(self, ids: NDArray[np.intp], rows: Rows) -> None:
        """Let ``rows`` be the rows that count of the entries ``ids``, which are all different."""
        entries = self.entries
        entries["counted"][ids] = rows.level + np.uint8(1)
        entries["append"][ids] = rows.append
        for width, at in self.catalog.wide_rows(rows.metric):
            pool = self._pools[width]
            slots = entries["slot"][ids[at]]
            slots[slots == 0] = pool.add(int(np.count_nonzero(slots == 0))) + 1
            entries["slot"][ids[at]] = slots
            pool.rows[slots - 1] = rows.payload[at, :width]

    def discount(self, ids: NDArray[np.intp]) -> None:
        """Let no row of the entries ``ids`` count any more; their pseudonyms were just revoked."""
        for name in ("counted", "append", "slot"):
            self.entries[name][ids] = 0

    def without(self, gone: NDArray[np.bool_]) -> State:
        """Return the state as if it had never seen the pseudonyms of the mask ``gone``."""
        everything = self._snapshot()
        staying = ~gone
        kept = {"pseudonyms": staying, "entries": staying[self.entries["pseudonym"]]}
        kept["conflicts"] = kept["entries"][self.conflicts["entry"]]
        columns = {
            (table, name): column[kept[table]]
            for (table, name), column in everything.columns.items()
        }
        for refers, to in (("entries", "pseudonym"), ("conflicts", "entry")):
            place = np.cumsum(kept["pseudonyms" if refers == "entries" else "entries"]) - 1
            columns[refers, to] = place[columns[refers, to]]
        left = replace(everything, columns=columns, payloads={})
        before = np.flatnonzero(kept["entries"])
        for width, at in left.pooled().items():
            left.payloads[width] = self._pools[width].rows[self.entries["slot"][before[at]] - 1]
        return State.from_bytes(left.to_bytes(), self.registry)

    def to_bytes(self) -> bytes:
        return self._snapshot().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, registry: Registry) -> State:
        """Read a state; metrics get the ids that they have in ``registry``."""
        stored = StateSnapshot.from_bytes(data)
        state = cls(registry, stored.shard, stored.period, stored.key)
        ids = _registered(stored.metrics, state.catalog)
        columns = dict(stored.columns)
        for table in ("entries", "conflicts"):
            columns[table, "metric"] = ids[columns[table, "metric"]]
        columns["entries", "counted"] = stored.counted
        tags = columns.pop(("entries", "tags"))
        for name in ("pseudonyms", "entries", "conflicts"):
            own = {column: values for (table, column), values in columns.items() if table == name}
            getattr(state, name).load(own)
        state.entries["tags"][:, : tags.shape[1]] = tags
        for width, at in stored.pooled().items():
            slots = state._pools[width].add(at.size)
            state._pools[width].rows[slots] = stored.payloads[width]
            state.entries["slot"][at] = slots + 1
        entries = state.entries
        cost = state.catalog.certified[entries["metric"], entries["counted"]]
        np.add.at(state.pseudonyms["accepted"], entries["pseudonym"], cost)
        return state

    def _snapshot(self) -> StateSnapshot:
        """Return the content, without columns that are computed from others when it is read."""
        occurring = np.unique(
            np.concatenate([self.entries["metric"], self.conflicts["metric"]])
        ).tolist()
        catalog = self.catalog
        occurring.sort(key=lambda metric: catalog.identities[metric])
        columns = {(table, name): getattr(self, table)[name] for table, name, _ in LAYOUT}
        place = np.zeros(len(catalog.identities), dtype=np.uint16)
        place[occurring] = np.arange(len(occurring))
        for table in ("entries", "conflicts"):
            columns[table, "metric"] = place[columns[table, "metric"]]
        levels = int(catalog.levels[occurring].max(initial=0))
        columns["entries", "tags"] = columns["entries", "tags"][:, :levels]
        snapshot = StateSnapshot(
            shard=self.shard,
            period=self.period,
            key=self.key,
            metrics=tuple(
                StoredMetric._make((*catalog.identities[metric], *catalog.shape_of(metric)))
                for metric in occurring
            ),
            columns=columns,
            payloads={},
        )
        for width, at in snapshot.pooled().items():
            snapshot.payloads[width] = self._pools[width].rows[self.entries["slot"][at] - 1]
        return snapshot


def _registered(stored: tuple[StoredMetric, ...], catalog: Catalog) -> NDArray[np.uint16]:
    ids = {identity: number for number, identity in enumerate(catalog.identities)}
    for metric in stored:
        number = ids.get((metric.fingerprint, metric.position))
        if number is None:
            raise PlanError(
                f"the state needs the plan with the fingerprint {metric.fingerprint.hex()}, "
                f"metric {metric.position}, which the registry does not have"
            )
        if catalog.shape_of(number) != (metric.levels, metric.width):
            raise FormatError(f"metric {number} has other levels or payloads than in the state")
    return np.array([ids[metric[:2]] for metric in stored], dtype=np.uint16)


def _pairs(table: HashTable, ids: NDArray[np.integer]) -> NDArray[np.uint64]:
    return np.stack([table["low"][ids], table["high"][ids]], axis=1)
