"""The figures of a state directory that are exposed, read without its lock, also during a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.results.fields import record_of
from pipelines.results.records import Budget
from pipelines.sources.base import MissingError
from pipelines.storage import files
from pipelines.storage.directory import LastRun, StateDirectory
from pipelines.storage.manifest import Manifest, add_rows
from sotto.plan.registry import Registry


@dataclass(frozen=True)
class Committed:
    """Figures of a state directory."""

    manifest: Manifest
    begun: int | None  #: when the unfinished run on top of it began, ms of the wall clock
    last: LastRun | None
    size: Mapping[str, int]  #: bytes by folder
    rejected: Mapping[str, int]  #: all reports that were rejected, by reason
    periods: Sequence[Budget]  #: oldest first
    registry: Registry | None  #: None before the first run


def committed(state_dir: Path) -> Committed:
    directory = StateDirectory(state_dir)
    if not (state_dir / "MANIFEST.json").exists():
        raise MissingError(f"{state_dir} holds no run")
    manifest = directory.manifest()
    registry = directory.plans.registry(manifest.plans) if manifest.plans else None
    of, states = directory.files, manifest.states.items()
    size = {
        "states": files.total_size(path for key, held in states for path in of.state(*key, held)),
        "counts": files.total_size(of.page(*page) for page in manifest.pages.items()),
        "quarantine": files.total_size(of.quarantine(q) for q in manifest.quarantine),
        "plans": files.total_size(directory.plans.path(plan) for plan in manifest.plans),
    }
    return Committed(
        manifest=manifest,
        begun=directory.begun(manifest),
        last=LastRun.of(state_dir),
        size=size,
        rejected=add_rows(manifest.expired, manifest.quarantine),
        periods=[record_of(Budget, row) for row in manifest.budgets(registry)] if registry else [],
        registry=registry,
    )
