"""The kill switch: a client that is switched off by ``SOTTO_DISABLED`` or its settings."""

from __future__ import annotations

from typing import NoReturn

from clientsdk.outcomes import Outcome, Refusal
from sotto.errors import StoreError
from sotto.plan.compiled import CompiledPlan


def refusals(plan: CompiledPlan) -> dict[str, Refusal]:
    """Return what becomes of every value, by metric."""
    return {each.name: Refusal(Outcome.DISABLED, each.plain, None) for each in plan.metrics}


def refuse(what: str) -> NoReturn:
    """Say that something cannot be done, since no file may be touched.

    Raises
    ------
    StoreError
        Always.
    """
    raise StoreError(f"{what}: the SDK is switched off (SOTTO_DISABLED or its settings)")
