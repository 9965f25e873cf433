"""Reads the log a second time, without the aggregator.

Rows other than a true device's accepted rows are dropped; the levels of the rest are brought
together by chain, and their last one is counted with the mechanisms' own kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sotto.log.reader import LogReader, partitions
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.decode import Batch, decode

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Reports:
    """All levels of a metric's counted chains; columns of length n, one row a chain.

    Ids have the shape (n, 2), ``payload`` (n, levels, width); ``arrived``, (n, levels), is the
    append time (ms) of each level's first copy, :data:`NEVER` of one that the log does not hold.
    """

    pseudonym: NDArray[np.uint64]
    chain: NDArray[np.uint64]
    event: NDArray[np.int64]
    payload: NDArray[np.uint8]
    arrived: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.event)

    def counts(
        self, metric: CompiledMetric, level: int, groups: NDArray[np.int64], n_groups: int
    ) -> NDArray[np.int64]:
        """Count the payloads of one level by group: ``(n_groups, count_length)``."""
        payloads = np.ascontiguousarray(self.payload[:, level])
        return metric.mechanism.accumulate(payloads, self.chain, self.pseudonym, groups, n_groups)


def read_reports(
    log: Path, plan: CompiledPlan, pseudonyms: NDArray[np.uint64]
) -> dict[str, Reports]:
    """Read the reports of a log, once each, of those pseudonyms, ``(m, 2)``, that behaved."""
    registry = Registry([plan])
    known = pseudonyms[np.argsort(pseudonyms[:, 0])]
    parts: dict[int, list[Batch]] = {each.id: [] for each in registry.metrics}
    for batch in _batches(log, registry):
        # Random ids of which two share their first half are not to be expected.
        at = np.searchsorted(known[:, 0], batch.pseudonym[:, 0])
        named = known[np.minimum(at, len(known) - 1)]
        parts[batch.metric].append(_select(batch, (named == batch.pseudonym).all(axis=1)))
    return {
        plan.metrics[number].name: _reports(plan.metrics[number], batches)
        for number, batches in parts.items()
    }


def _batches(log: Path, registry: Registry) -> Iterator[Batch]:
    for lane in partitions(log):
        reader = LogReader(lane)
        for block in reader.blocks(reader.begin(), reader.end()):
            decoded = decode(block.buffer, block.offsets, block.lengths, block.append, registry)
            yield from decoded.batches


def _select(batch: Batch, which: NDArray[np.bool_]) -> Batch:
    names = ("level", "pseudonym", "chain", "event", "append", "payload", "cell")
    return Batch(batch.metric, *(getattr(batch, name)[which] for name in names))


def _reports(metric: CompiledMetric, batches: Iterable[Batch]) -> Reports:
    """Bring the levels of each chain together; repetitions fall onto one another."""
    parts = list(batches)
    chain, level, event, append = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("chain", "level", "event", "append")
    )
    pseudonym = np.concatenate([part.pseudonym for part in parts])
    payload = np.concatenate([part.payload for part in parts])
    order = np.lexsort((chain[:, 0], chain[:, 1]))
    chain, level, event = chain[order], level[order], event[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (chain[1:] != chain[:-1]).any(axis=1)
    number = np.cumsum(first) - 1
    count, levels = int(number[-1]) + 1, metric.mechanism.levels
    payloads = np.zeros((count, levels, payload.shape[1]), dtype=np.uint8)
    payloads[number, level] = payload[order]
    arrived = np.full((count, levels), NEVER)
    np.minimum.at(arrived, (number, level), append[order])
    return Reports(pseudonym[order][first], chain[first], event[first], payloads, arrived)
