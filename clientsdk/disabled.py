"""A client that could not be made, and does nothing instead: telemetry never stops an app."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from clientsdk.outcomes import Outcome, Refusal
from clientsdk.settings import checked_path, read_plan
from sotto.errors import ParameterError, SottoError
from sotto.plan.compiled import Ceilings, CompiledPlan

#: No setting, since an app decides it where it opens a client: ``raise`` alone counts.
VARIABLE = "SOTTO_ON_ERROR"
SWITCHED_OFF = "the SDK is switched off (SOTTO_DISABLED or its settings)"
#: Stands for a plan that cannot be read: it has no metric.
NO_PLAN = CompiledPlan(
    collector="unknown",
    plan="unknown",
    version=1,
    owner="",
    expires=0,
    period=86_400_000,
    resolution=1000,
    grace=0,
    retention=1,
    shards=1,
    ceilings=Ceilings(1, 1),
    metrics=(),
)
#: Under which recordings are counted whose metric the plan does not have: no metric's name.
UNKNOWN_METRIC = "(unknown)"


def raises(on_error: str) -> bool:
    """Whether errors are raised: where the app or the environment wants it."""
    if on_error not in ("disable", "raise"):
        raise ParameterError("on_error must be 'disable' or 'raise'")
    return on_error == "raise" or os.environ.get(VARIABLE, "").strip().lower() == "raise"


def reason_of(error: Exception) -> str:
    """Return why a client is disabled, without what may hold a value or a path of the user's."""
    # A ModuleNotFoundError says which optional package is missing.
    known = isinstance(error, SottoError | ModuleNotFoundError)
    return str(error) if known else type(error).__name__


def plan_if_readable(given: Any) -> CompiledPlan:
    with suppress(Exception):
        return read_plan(given, None)
    return NO_PLAN


def path_if_usable(state: Any) -> str | None:
    with suppress(Exception):
        return checked_path(state)
    return None


def refusals(plan: CompiledPlan) -> dict[str, Refusal]:
    """Return what becomes of every value while the SDK is disabled, by metric."""
    return {each.name: Refusal(Outcome.DISABLED, each.plain, None, 0) for each in plan.metrics}
