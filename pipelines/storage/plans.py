"""The plans that a state directory keeps, so that nobody has to give them again.

The directory keeps the last document of every plan that a run or a requeue was given, and the
candidates of its string metrics. A plan's fingerprint leaves out its owner, dates, texts and
``minimum_reports``, so each file also has a digest of its whole content, as the manifest has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.storage import files
from pipelines.storage.files import dump_document, load_document
from sotto.errors import AggregationError, PlanError
from sotto.plan.compiled import CompiledPlan, canonical
from sotto.plan.registry import Registry, check_unchanged, names_of

if TYPE_CHECKING:
    from pipelines.aggregation.result_rows import Candidates

FORMAT = 2

_WHAT_TO_DO = "restore it, or remove it and give the plan again with --plan"


class StoredPlans:
    """The plans in a folder, which need not exist, each with the candidates of its strings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, fingerprint: str) -> Path:
        return self._folder / f"{fingerprint}.json"

    def load(self, fingerprint: str) -> CompiledPlan:
        """Return the plan of a fingerprint, in hexadecimal."""
        path = self.path(fingerprint)
        return _plan(path.read_bytes(), path)

    def load_all(self) -> list[CompiledPlan]:
        return [self.load(path.stem) for path in sorted(self._folder.glob("*.json"))]

    def registry(self, fingerprints: Iterable[str]) -> Registry:
        """Return the registry of the plans of some fingerprints."""
        return _registry(tuple(map(self.load, fingerprints)))

    def candidates(self, fingerprint: str) -> Mapping[str, Sequence[str]]:
        path = self._candidates_path(fingerprint)
        return _strings(path.read_bytes(), path) if path.exists() else {}

    def with_given(
        self, plans: Sequence[CompiledPlan], candidates: Candidates
    ) -> tuple[Registry, Candidates]:
        """Return the plans that are given and those that are kept, and the candidates of all.

        A given plan replaces the kept one of its fingerprint, and given candidates those of their
        metric. A plan that is given without candidates, as a compiled one always is, keeps those
        that it has.

        Raises PlanError if a version has another fingerprint than before, or the plans are not of
        one collector; AggregationError if there is no plan at all, or a file is damaged.
        """
        kept = self.load_all()
        check_unchanged(names_of(kept), plans)
        given = {plan.fingerprint for plan in plans}
        whole = [*(plan for plan in kept if plan.fingerprint not in given), *plans]
        if not whole:
            raise AggregationError(f"{self._folder} has no plans yet: give --plan, or keep([...])")
        strings = {
            plan.fingerprint: {
                **self.candidates(plan.fingerprint_hex),
                **candidates.get(plan.fingerprint, {}),
            }
            for plan in whole
        }
        return _registry(tuple(whole)), strings

    def keep(self, plans: Sequence[CompiledPlan], candidates: Candidates) -> None:
        """Keep plans and candidates; a document replaces the earlier one of its fingerprint."""
        for plan in plans:
            document = {"format": FORMAT, "plan": json.loads(plan.to_json())}
            _replace(self.path(plan.fingerprint_hex), document)
            given = candidates.get(plan.fingerprint, {})
            strings = {metric: list(found) for metric, found in given.items() if found}
            if strings:
                document = {"format": FORMAT, "candidates": strings}
                _replace(self._candidates_path(plan.fingerprint_hex), document)

    def _candidates_path(self, fingerprint: str) -> Path:
        return self._folder / f"{fingerprint}.candidates"


def _replace(path: Path, document: Mapping[str, object]) -> None:
    content = dump_document(document)
    if not path.exists() or path.read_bytes() != content:
        files.replace(path, content)


@lru_cache(maxsize=16)
def _registry(plans: tuple[CompiledPlan, ...]) -> Registry:
    """Return the registry of plans: the same object as before if no plan has come or changed."""
    return Registry(plans)


@lru_cache(maxsize=64)
def _plan(content: bytes, path: Path) -> CompiledPlan:
    document = _document(content, path)
    try:
        plan = CompiledPlan.from_json(canonical(document["plan"]))
    except (PlanError, KeyError) as error:
        raise AggregationError(
            f"{path} holds no plan that can be used ({error}): {_WHAT_TO_DO}"
        ) from None
    if plan.fingerprint_hex != path.stem:
        raise AggregationError(
            f"{path} holds the plan of another fingerprint, {plan.fingerprint_hex}: {_WHAT_TO_DO}"
        )
    return plan


@lru_cache(maxsize=16)
def _strings(content: bytes, path: Path) -> Mapping[str, Sequence[str]]:
    found = _document(content, path)["candidates"]
    return {metric: tuple(strings) for metric, strings in found.items()}


def _document(content: bytes, path: Path) -> Any:
    try:
        return load_document(content, str(path), FORMAT)
    except AggregationError as error:
        raise AggregationError(f"{error}: {_WHAT_TO_DO}") from None
