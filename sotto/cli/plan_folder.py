"""A folder of plan files that is read again before each run of ``sotto aggregate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.cli import options
from sotto.errors import BrokerError, ParameterError, PlanError
from sotto.plan.development import is_development

if TYPE_CHECKING:
    from pipelines.storage.plans import StoredPlans
    from sotto.plan.compiled import CompiledPlan
    from sotto.plan.registry import Registry

_ENDINGS = (".json", ".yaml", ".yml")


class PlanFolder:
    """The plans of a folder, if one is given, that can be used beside those of a state directory.

    A file that cannot be used is left out, with one warning for each reason. ``check`` is called
    with a registry: it raises BrokerError if what is read cannot be used with its plans, one with a
    longer horizon than a topic's retention for example. Such a plan is left out.
    """

    def __init__(
        self,
        path: Path | None,
        stored: StoredPlans,
        check: Callable[[Registry], None],
        warn: Callable[[str], None],
    ) -> None:
        if path is not None and not path.is_dir():
            raise ParameterError(f"--plans {path}: there is no such folder")
        self._path = path
        self._stored = stored
        self._check_source = check
        self._warn = warn
        self._warned: dict[Path, str] = {}

    def added_to(
        self,
        plans: Sequence[CompiledPlan],
        candidates: Mapping[bytes, Mapping[str, Sequence[str]]],
    ) -> tuple[list[CompiledPlan], dict[bytes, Mapping[str, Sequence[str]]]]:
        """Return plans and candidates that are given, with those of the folder behind them.

        Raises AggregationError if a plan of the state directory is damaged, BrokerError if the
        source cannot be used, whatever the folder has.
        """
        whole, strings = list(plans), dict(candidates)
        for path, plan, found in self._loaded():
            try:
                self._check(plan, whole)
            except (PlanError, ImportError, _UnsuitableError) as error:
                self._warn_once(path, str(error))
                continue
            self._warned.pop(path, None)
            whole.append(plan)
            strings[plan.fingerprint] = {**strings.get(plan.fingerprint, {}), **found}
        return whole, strings

    def _loaded(self) -> list[tuple[Path, CompiledPlan, Mapping[str, Sequence[str]]]]:
        """Return the plans that can be read: development plans last, which are written beside the
        real ones and are of another collector.
        """
        loaded = []
        for path in self._files():
            try:
                plan, found, _ = options.load(path)
            except (PlanError, UnicodeError, OSError, ImportError) as error:
                self._warn_once(path, str(error))
                continue
            loaded.append((path, plan, found))
        return sorted(loaded, key=lambda each: is_development(each[1]))

    def _files(self) -> list[Path]:
        """Return the plan files, by name; none where the folder cannot be read now."""
        if self._path is None:
            return []
        try:
            found = sorted(self._path.iterdir())
        except OSError as error:
            self._warn_once(self._path, str(error.strerror))
            return []
        self._warned.pop(self._path, None)
        return [path for path in found if path.suffix in _ENDINGS and not path.name.startswith(".")]

    def _check(self, plan: CompiledPlan, before: Sequence[CompiledPlan]) -> None:
        """Return if a plan can be used beside those before it."""
        kept = self._stored.load_all()
        registry, _ = self._stored.with_given([*before, plan], {})
        registry.require_signatures()
        known = {each.fingerprint for each in (*kept, *before)}
        if not known or plan.fingerprint in known:
            return
        try:
            self._check_source(registry)
        except BrokerError as error:
            # The source may be out of reach: then the error is not about this plan.
            self._check_source(self._stored.with_given(before, {})[0])
            raise _UnsuitableError(str(error)) from error

    def _warn_once(self, path: Path, why: str) -> None:
        if self._warned.get(path) != why:
            self._warned[path] = why
            self._warn(f"{path} is left out: {why}")


class _UnsuitableError(Exception):
    """The source cannot be used with a plan."""
