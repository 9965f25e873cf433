"""The plans of a pipeline, the same for every worker: in the pipeline, or in a folder.

:class:`FixedPlans` travel with the pipeline. A :class:`PlansFolder` is read again while the
pipeline runs, so that plans can be added. Packed rows cross workers with the *numbering* of the
registry that decoded them, which says which plans number their metrics; a worker that meets a plan
that it does not know yet reads the folder at once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pipelines.aggregation.result_rows import Candidates
from pipelines.storage import files
from pipelines.storage.files import dump_document, load_document
from pipelines.storage.plans import StoredPlans
from pipelines.storage.states import fingerprints_of
from sotto.clocks import now_ms
from sotto.errors import ParameterError, PlanError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

#: Seconds between two looks at the folder.
LOOK_SECONDS = 15.0
FORMAT = 1
#: The name of the file in the folder that says when plans came.
_SINCE = "since"
T = TypeVar("T")


class PlanSource(ABC):
    """The place where the stages of a pipeline find its plans; it crosses Beam pickled."""

    @abstractmethod
    def registry(self, *fingerprints: bytes) -> Registry:
        """Return the plans; PlanError if they lack one of these fingerprints."""

    def latest(self) -> Registry:
        """Return the plans as they are at this moment."""
        return self.registry()

    @abstractmethod
    def since(self) -> Mapping[bytes, int]:
        """Return when plans came, ms, by fingerprint; without those that the job had at first."""

    @abstractmethod
    def candidates(self) -> Candidates:
        """Return the strings to look for, by plan fingerprint and metric."""

    def numbered(self, numbering: bytes) -> Registry:
        """Return the registry that numbers metrics as :func:`numbering_of` says."""
        fingerprints = fingerprints_of(numbering)
        registry = self.registry(*fingerprints)
        return registry if numbering_of(registry) == numbering else _ordered(registry, fingerprints)


def expect(given: T, method: str, expected: str) -> T:
    """Return an argument of a transform; ParameterError if it does not have a method.

    ``expected``: what the error says that was expected.
    """
    if not hasattr(given, method):
        raise ParameterError(f"expects {expected}; got {type(given).__name__}")
    return given


def _check(plans: Sequence[CompiledPlan], candidates: Candidates) -> None:
    """Raise ParameterError if one is no plan, or candidates are of no string metric of a plan."""
    for plan in plans:
        expect(plan, "to_json", "plans such as CompiledPlan.from_json(content) returns")
    metrics = [(plan.fingerprint, each) for plan in plans for each in plan.metrics]
    known = {(fingerprint, each.name) for fingerprint, each in metrics if each.type == "string"}
    given = {(fingerprint, name) for fingerprint, names in candidates.items() for name in names}
    if unknown := sorted(name for _, name in given - known):
        raise ParameterError(f"no plan that is given has the string metrics {', '.join(unknown)}")


@dataclass(frozen=True)
class FixedPlans(PlanSource):
    """Plans that travel with the pipeline: workers need no folder to find them.

    To add a plan, the job has to be updated; ``later`` then says when the plan came.
    """

    compiled: tuple[bytes, ...]  #: plans as ``sotto plan compile`` writes them
    strings: tuple[tuple[bytes, Mapping[str, Sequence[str]]], ...] = ()
    later: tuple[tuple[bytes, int], ...] = ()

    @classmethod
    def of(
        cls,
        plans: Sequence[CompiledPlan],
        candidates: Candidates | None = None,
        since: Mapping[bytes, int] | None = None,
    ) -> FixedPlans:
        """Return plans and versions of one collector.

        ``candidates``: strings to look for, by plan fingerprint and metric. ``since``: by
        fingerprint, when a plan came, ms, of those that a job did not have from the first: such a
        plan opens no period that was over by then.

        Raises PlanError if the plans are not of one collector, and ParameterError if one is no
        plan, or candidates are of none of their string metrics.
        """
        _check(plans, candidates or {})
        made = cls(
            tuple(plan.to_json() for plan in plans),
            tuple((candidates or {}).items()),
            tuple((since or {}).items()),
        )
        made.registry().require_signatures()
        return made

    def registry(self, *fingerprints: bytes) -> Registry:
        return _with(_compiled(self.compiled), fingerprints, "in the pipeline: update it with them")

    def since(self) -> Mapping[bytes, int]:
        return dict(self.later)

    def candidates(self) -> Candidates:
        return dict(self.strings)


@dataclass(frozen=True)
class PlansFolder(PlanSource):
    """A folder of plans that all workers reach, to which plans may come while a pipeline runs."""

    path: str

    def keep(self, plans: Sequence[CompiledPlan], candidates: Candidates | None = None) -> None:
        """Write plans into the folder, and note when plans came that it did not have at first.

        ``candidates`` are as for :meth:`FixedPlans.of`. Only one process at a time may call this.

        Raises PlanError if the plans contradict those in the folder, or are not of one collector.
        """
        _check(plans, candidates or {})
        folder, stored = Path(self.path), StoredPlans(Path(self.path))
        stored.with_given(plans, candidates or {})[0].require_signatures()
        folder.mkdir(parents=True, exist_ok=True)
        known = {plan.fingerprint for plan in stored.load_all()}
        new = {plan.fingerprint: now_ms() for plan in plans if plan.fingerprint not in known}
        if known and new:
            keep_since(folder, {**load_since(folder), **new})
        stored.keep(plans, candidates or {})

    def registry(self, *fingerprints: bytes) -> Registry:
        """Return the plans as of at most ``LOOK_SECONDS`` ago; as of now if one is missing."""
        registry = _looked(self.path).registry
        if any(each not in registry.by_fingerprint for each in fingerprints):
            registry = _look(self.path).registry
        return _with(registry, fingerprints, "in the folder of plans: put them back")

    def latest(self) -> Registry:
        return _look(self.path).registry

    def since(self) -> Mapping[bytes, int]:
        return _looked(self.path).since

    def candidates(self) -> Candidates:
        return _looked(self.path).candidates


def _with(registry: Registry, fingerprints: Sequence[bytes], place: str) -> Registry:
    """Return a registry; PlanError if it lacks the plan of a fingerprint."""
    missing = [each.hex() for each in fingerprints if each not in registry.by_fingerprint]
    if missing:
        raise PlanError(
            f"reports have been counted under plans of the fingerprints {', '.join(missing)}, "
            f"which are not {place}"
        )
    return registry


@lru_cache(maxsize=4)
def _compiled(plans: tuple[bytes, ...]) -> Registry:
    return Registry([CompiledPlan.from_json(plan) for plan in plans])


def load_since(folder: Path) -> dict[bytes, int]:
    """Return when plans came, as :func:`keep_since` has noted it in their folder."""
    path = folder / _SINCE
    try:
        value = load_document(path.read_bytes(), str(path), FORMAT)
    except FileNotFoundError:
        return {}
    return {bytes.fromhex(plan): came for plan, came in value["since"].items()}


def keep_since(folder: Path, since: Mapping[bytes, int]) -> None:
    """Note when plans came; this must be done before the plans are written."""
    came = {plan.hex(): time for plan, time in since.items()}
    files.replace(folder / _SINCE, dump_document({"format": FORMAT, "since": came}))


def numbering_of(registry: Registry) -> bytes:
    """Return the plans' fingerprints in the order that gives metrics their ids."""
    return b"".join(plan.fingerprint for plan in registry.plans)


@dataclass(frozen=True)
class _Looked:
    at: float
    registry: Registry
    candidates: Mapping[bytes, Mapping[str, Sequence[str]]]
    since: Mapping[bytes, int]


_held: dict[str, _Looked] = {}
_lock = threading.Lock()


def _looked(path: str) -> _Looked:
    held = _held.get(path)
    return held if held is not None and time.monotonic() - held.at < LOOK_SECONDS else _look(path)


def _look(path: str) -> _Looked:
    """Read the folder."""
    with _lock:
        registry, candidates = StoredPlans(Path(path)).with_given([], {})
        _held[path] = looked = _Looked(
            time.monotonic(), registry, candidates, load_since(Path(path))
        )
        return looked


@lru_cache(maxsize=16)
def _ordered(registry: Registry, fingerprints: tuple[bytes, ...]) -> Registry:
    return Registry([registry.by_fingerprint[each] for each in fingerprints])
