"""The plans that the collector takes reports of, read again from time to time."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sotto.errors import ParameterError, PlanError
from sotto.plan.compile import load_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

#: Seconds between two looks at the folder.
_LOOK = 5.0
_ENDINGS = (".json", ".yaml", ".yml")


class Plans:
    """The plans of one collector, and the document that is served of them.

    Attributes
    ----------
    collector : str
    fingerprints : set of bytes
        Of the plans whose messages are taken.
    body : bytes
        ``{"plans": [...]}``, each as ``sotto plan compile`` writes it.
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
        self.fingerprints = set(registry.by_fingerprint)
        documents = [json.loads(plan.to_json()) for plan in registry.plans]
        self.body = json.dumps({"plans": documents}, separators=(",", ":")).encode()
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


class PlanFiles:
    """Returns the plans of files and of a folder; what is put into the folder needs no restart.

    A file of the folder that cannot be used is left out, with one warning for each reason; once
    known, a plan stays until the process ends, since devices still send what they recorded.

    Raises
    ------
    ParameterError, PlanError
        No plan can be used, or one that was named is not one.
    """

    def __init__(
        self, files: Sequence[Path], folder: Path | None, warn: Callable[[str], None]
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise ParameterError(f"--plans {folder}: there is no such folder")
        self._folder = folder
        self._warn = warn
        self._warned: dict[Path, str] = {}
        self._plans = [_load(path) for path in files]
        self._read_folder()
        if not self._plans:
            raise ParameterError(f"{folder}: there is no plan yet")
        self._known = Plans(self._plans)
        self._next = time.monotonic() + _LOOK

    def __call__(self) -> Plans:
        """Return the plans that are known now."""
        if self._folder is not None and time.monotonic() >= self._next:
            if self._read_folder():
                self._known = Plans(self._plans)
            self._next = time.monotonic() + _LOOK
        return self._known

    def _read_folder(self) -> bool:
        """Add the folder's plans that are not known yet; return whether there were any."""
        known = len(self._plans)
        paths = [] if self._folder is None else sorted(self._folder.iterdir())
        for path in paths:
            if path.suffix not in _ENDINGS or path.name.startswith("."):
                continue
            try:
                plan = _load(path)
                if plan.fingerprint not in {each.fingerprint for each in self._plans}:
                    Plans([*self._plans, plan])
                    self._plans.append(plan)
            except (PlanError, OSError, UnicodeError) as error:
                if self._warned.get(path) != str(error):
                    self._warned[path] = str(error)
                    self._warn(f"{path} is left out: {error}")
        return len(self._plans) > known


def _load(path: Path) -> CompiledPlan:
    return CompiledPlan.from_file(path) if path.suffix == ".json" else load_plan(path).compile()
