"""A second count of the log, made without the aggregator.

Rows other than a true device's accepted rows are dropped; the levels of the rest are brought
together by chain, and their last one is counted with the mechanisms' own kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation import counts
from pipelines.aggregation.pairs import split
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from sotto.log.reader import LogReader, partitions
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.decode import Batch, decode

from .truth import KeptReports

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Opinion:
    """Figures that the log gives without the aggregator.

    ``arrived`` says when each level of each metric's kept reports did (ms), ``windows`` has counts
    at the last level by metric and start; ``reports`` counts levels once.
    """

    arrived: Mapping[str, NDArray[np.int64]]
    windows: Mapping[tuple[str, int], NDArray[np.int64]]
    reports: int


class Chains(NamedTuple):
    """The chains of a metric, a row each.

    Ids have the shape (n, 2), ``payload``, the last level's, (n, width); ``arrived``, (n, levels),
    is the append time (ms) of each level's first copy, :data:`NEVER` of one that the log does not
    hold.
    """

    pseudonym: NDArray[np.uint64]
    chain: NDArray[np.uint64]
    event: NDArray[np.int64]
    payload: NDArray[np.uint8]
    arrived: NDArray[np.int64]


def form_opinion(log: Path, plan: CompiledPlan, kept: Mapping[str, KeptReports]) -> Opinion:
    behaved = np.unique(np.concatenate([each.pseudonym for each in kept.values()]), axis=0)
    parts = _read(log, plan, behaved)
    arrived: dict[str, NDArray[np.int64]] = {}
    windows: dict[tuple[str, int], NDArray[np.int64]] = {}
    for metric in plan.metrics:
        found, expected = _chains(metric, parts[metric.index]), kept[metric.name]
        if (found.arrived == NEVER).any() or len(found.event) != len(expected):
            raise RuntimeError(f"the log does not hold every level of {metric.name}")
        numbers = found.event // metric.window
        first, size = int(numbers.min()), int(np.ptp(numbers)) + 1
        last = metric.mechanism.accumulate(
            found.payload, found.chain, found.pseudonym, numbers - first, size
        )
        for number, vector in enumerate(last, first):
            windows[metric.name, number * metric.window] = vector
        # In the order of the truth: both have one chain a pseudonym.
        order = np.argsort(found.pseudonym[:, 0])
        place = np.searchsorted(found.pseudonym[order, 0], expected.pseudonym[:, 0])
        arrived[metric.name] = found.arrived[order[place]]
    return Opinion(arrived, windows, sum(each.size for each in arrived.values()))


def _read(log: Path, plan: CompiledPlan, known: NDArray[np.uint64]) -> dict[int, list[Batch]]:
    """Read the rows of a log by metric, of those sorted pseudonyms, ``(m, 2)``, alone."""
    registry = Registry([plan])
    parts: dict[int, list[Batch]] = {each.id: [] for each in registry.metrics}
    for lane in partitions(log):
        reader = LogReader(lane)
        for block in reader.blocks(reader.begin(), reader.end()):
            decoded = decode(block.buffer, block.offsets, block.lengths, block.append, registry)
            for batch in decoded.batches:
                # Random ids of which two share their first half are not to be expected.
                at = np.searchsorted(known[:, 0], batch.pseudonym[:, 0])
                named = known[np.minimum(at, len(known) - 1)]
                parts[batch.metric].append(batch[(named == batch.pseudonym).all(axis=1)])
    return parts


def _chains(metric: CompiledMetric, parts: Sequence[Batch]) -> Chains:
    """Bring the levels of each chain together; repetitions fall onto one another."""
    chain = np.concatenate([part.chain for part in parts])
    order = np.lexsort((chain[:, 0], chain[:, 1]))
    chain = chain[order]
    pseudonym, payload, level, event, append = (
        np.concatenate([getattr(part, name) for part in parts])[order]
        for name in ("pseudonym", "payload", "level", "event", "append")
    )
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (chain[1:] != chain[:-1]).any(axis=1)
    number, levels = np.cumsum(first) - 1, metric.mechanism.levels
    payloads = np.zeros((np.count_nonzero(first), payload.shape[1]), dtype=np.uint8)
    last = level == levels - 1
    payloads[number[last]] = payload[last]
    arrived = np.full((len(payloads), levels), NEVER)
    np.minimum.at(arrived, (number, level), append)
    return Chains(pseudonym[first], chain[first], event[first], payloads, arrived)


def equal_windows(state_dir: Path, plan: CompiledPlan, opinion: Opinion) -> tuple[int, int]:
    """Return in how many windows the aggregator counted just the same, and how many there are."""
    directory = StateDirectory(state_dir)
    manifest = directory.manifest()
    committed = {}
    for page, generation in manifest.pages.items():
        data = files.load(directory.files.page(page, generation), counts.KIND)
        for key, window in counts.unpack_page(data).items():
            if window.counts.any():
                metric = plan.metrics[key.metric]
                committed[metric.name, key.start], _ = split(metric.mechanism, window.counts)
    mine = {key: vector for key, vector in opinion.windows.items() if vector.any()}
    equal = sum(
        key in committed
        and np.array_equal(committed[key][-1], vector)
        and not committed[key][:-1].any()
        for key, vector in mine.items()
    )
    return equal, len(committed.keys() | mine.keys())
