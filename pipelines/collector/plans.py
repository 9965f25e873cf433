"""The plans that the collector takes reports of, read again from time to time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from sotto.clocks import now_ms
from sotto.errors import ParameterError, PlanError
from sotto.plan.compiled import CompiledPlan, Plan
from sotto.plan.files import PlanFileFolder, plan_of
from sotto.plan.registry import Registry


class ServedPlans:
    """The plans of one collector, and the document in which they are served.

    Attributes
    ----------
    collector : str
    plans : sequence of CompiledPlan
    fingerprints : set of bytes
        The fingerprints of the plans whose messages are taken.
    body : bytes
        ``{"plans": [...]}``, each as the bytes that ``sotto plan compile`` writes.
    etag : str
        Of the body.

    Raises
    ------
    PlanError
        The plans do not go together: :class:`sotto.plan.registry.Registry`.
    """

    def __init__(self, plans: Sequence[CompiledPlan]) -> None:
        registry = Registry(plans)
        self.collector = registry.collector
        self.plans = registry.plans
        self.fingerprints = set(registry.by_fingerprint)
        documents = [plan.to_json() for plan in registry.plans]
        self.body = b'{"plans":[' + b",".join(documents) + b"]}"
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


class PlanFiles:
    """The plans of files and of a folder, to which plans can be added without a restart.

    A file of the folder that cannot be used is left out, with one warning for each reason. A plan
    that is known stays so until the process ends, since devices still send what they recorded. A
    plan that has ended, or ends soon, is taken with a warning, since devices may have a later date.
    If a file changes only in fields that the fingerprint leaves out, such as ``expires``, the new
    document is served.

    Attributes
    ----------
    known : ServedPlans
        The plans that are known now.

    Raises
    ------
    ParameterError, PlanError
        No plan can be used, all have ended, or one that was named is not one.
    """

    def __init__(
        self, files: Sequence[Path], folder: Path | None, warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._folder = None if folder is None else PlanFileFolder(folder, warn)
        self._plans: dict[bytes, CompiledPlan] = {}
        #: The file of the folder that a plan is from, by fingerprint.
        self._sources: dict[bytes, Path] = {}
        self.known: ServedPlans
        if files:
            named = [plan_of(path).compiled for path in files]
            self.known = ServedPlans(named)
            self._plans = {plan.fingerprint: plan for plan in named}
            self._warn_of_ends(named)
        self.reload()
        if not self._plans:
            raise ParameterError(f"{folder}: there is no plan yet")
        if all(plan.expired(now_ms()) for plan in self._plans.values()):
            raise PlanError("no plan is left that devices record under: all have ended")

    def _warn_of_ends(self, plans: Sequence[CompiledPlan]) -> None:
        for ending in filter(None, (plan.ending(now_ms()) for plan in plans)):
            self._warn(ending)

    def reload(self) -> None:
        """Take the plans of files in the folder that are new or have changed."""
        if self._folder is not None:
            self._folder.take(self._take, changed_only=True)

    def _take(self, path: Path, read: Plan) -> None:
        plan = read.compiled
        plans = dict(self._plans)
        source = self._sources.get(plan.fingerprint)
        if source is not None and (source == path or not source.exists()):
            del plans[plan.fingerprint]
        # Registry refuses two documents of one fingerprint that are in two files.
        self.known = ServedPlans([*plans.values(), plan])
        self._plans = plans | {plan.fingerprint: plan}
        self._sources[plan.fingerprint] = path
        self._warn_of_ends([plan])
