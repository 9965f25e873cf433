"""A folder of plan files that is read again before each run of ``sotto aggregate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipelines.storage.plans import StoredPlans
from sotto.errors import BrokerError, PlanError
from sotto.plan.compiled import CompiledPlan, Plan
from sotto.plan.files import PlanFileFolder
from sotto.plan.registry import Registry


class PlanFolder:
    """The plans of a folder, if one is given, that can be used beside those of a state directory.

    A file that cannot be used is left out, with one warning for each reason. ``check`` is called
    with a registry of all plans. It raises BrokerError if the source cannot be used with them, for
    example if a plan has a longer horizon than a topic's retention; such a plan is left out.
    """

    def __init__(
        self,
        path: Path | None,
        stored: StoredPlans,
        check: Callable[[Registry], None],
        warn: Callable[[str], None],
    ) -> None:
        self._folder = None if path is None else PlanFileFolder(path, warn)
        self._stored = stored
        self._check_source = check

    def added_to(
        self,
        plans: Sequence[CompiledPlan],
        candidates: Mapping[bytes, Mapping[str, Sequence[str]]],
    ) -> tuple[list[CompiledPlan], dict[bytes, Mapping[str, Sequence[str]]]]:
        """Return the plans and candidates that are given, with those of the folder behind them.

        Raises AggregationError if a plan of the state directory is damaged, BrokerError if the
        source cannot be used even without the folder's plans.
        """
        whole, strings = list(plans), dict(candidates)

        def use(_: Path, read: Plan) -> None:
            plan = read.compiled
            self._check(plan, whole)
            whole.append(plan)
            strings[plan.fingerprint] = {**strings.get(plan.fingerprint, {}), **read.candidates}

        if self._folder is not None:
            self._folder.take(use)
        return whole, strings

    def _check(self, plan: CompiledPlan, before: Sequence[CompiledPlan]) -> None:
        """Raise PlanError or ImportError unless a plan can be used beside those before it."""
        kept = self._stored.load_all()
        registry, _ = self._stored.with_given([*before, plan], {})
        registry.require_signatures()
        known = {each.fingerprint for each in (*kept, *before)}
        if not known or plan.fingerprint in known:
            return
        try:
            self._check_source(registry)
        except BrokerError as error:
            # If the source cannot be used without this plan either, the error is not about it.
            self._check_source(self._stored.with_given(before, {})[0])
            raise PlanError(str(error)) from error
