"""What is committed in a state directory, read without its lock, also during a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pipelines.aggregation.audit import Totals
from pipelines.aggregation.step import Tally
from pipelines.sources.base import MissingError
from pipelines.storage import files
from pipelines.storage.directory import LastRun, StateDirectory
from pipelines.storage.files import AnyPath
from pipelines.storage.manifest import Manifest, add_rows
from sotto.errors import AggregationError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry


@dataclass(frozen=True)
class Period:
    """The audit of a budget period: its start in ms, whether it is closed, its totals."""

    start: int
    closed: bool
    totals: Totals


@dataclass(frozen=True)
class Committed:
    """What a state directory says."""

    generation: int
    clock: int | None  #: milliseconds
    undertaken: bool  #: whether a run on top of it has begun
    last: LastRun | None
    lanes: Mapping[str, int]  #: lane to the position up to which it is taken
    size: Mapping[str, int]  #: bytes by folder
    tally: Tally
    #: ``rejected`` and ``requeued``: reports by reason: all that were rejected, and those taken
    #: again since.
    rejected: Mapping[str, int]
    requeued: Mapping[str, int]
    periods: tuple[Period, ...]  #: oldest first
    registry: Registry | None  #: None before the first run


def committed(state_dir: Path) -> Committed:
    """Return what is committed."""
    directory = StateDirectory(state_dir)
    if not (state_dir / "MANIFEST.json").exists():
        raise MissingError(f"{state_dir} holds no run")
    manifest = directory.manifest()
    registry = _registry(directory, manifest)
    return Committed(
        generation=manifest.generation,
        clock=manifest.clock,
        undertaken=directory.intent(manifest) is not None,
        last=_last(state_dir),
        lanes=manifest.positions,
        size={
            folder: files.total_size(paths) for folder, paths in _files(directory, manifest).items()
        },
        tally=manifest.tally,
        rejected=add_rows(manifest.expired, manifest.quarantine),
        requeued=manifest.requeued,
        periods=_periods(manifest, registry),
        registry=registry,
    )


def _registry(directory: StateDirectory, manifest: Manifest) -> Registry | None:
    stored = [directory.plans.load(fingerprint) for fingerprint in manifest.plans]
    return _built(tuple(stored)) if stored else None


@lru_cache(maxsize=2)
def _built(plans: tuple[CompiledPlan, ...]) -> Registry:
    return Registry(plans)


def _last(state_dir: Path) -> LastRun | None:
    """Return the last run's note; it is no part of what is committed, and may be damaged."""
    try:
        return LastRun.of(state_dir)
    except AggregationError:
        return None


def _files(directory: StateDirectory, manifest: Manifest) -> dict[str, list[AnyPath]]:
    return {
        "states": [
            path
            for key, held in manifest.states.items()
            for path in directory.files.state(*key, held)
        ],
        "counts": [directory.page(page, made) for page, made in manifest.pages.items()],
        "quarantine": [directory.quarantine(entry.generation) for entry in manifest.quarantine],
        "plans": [directory.plans.path(fingerprint) for fingerprint in manifest.plans],
    }


def _periods(manifest: Manifest, registry: Registry | None) -> tuple[Period, ...]:
    if registry is None:
        return ()
    first_open = manifest.first_open
    return tuple(
        Period(period * registry.period, first_open is not None and period < first_open, totals)
        for period, totals in sorted(manifest.audit().items())
    )
