"""What an app hands to a client, checked."""

from __future__ import annotations

import os
import re

from clientsdk import complaints
from clientsdk.forgetful import NO_LIFETIME_BOUND, Forgetful
from clientsdk.publishers import Publisher
from sotto.errors import ParameterError, PlanError
from sotto.plan.compiled import Ceilings, CompiledPlan

#: Micro-epsilon; no plan has a use for less.
LEAST_CEILING = 1_000


def read_plan(plan: CompiledPlan | bytes | str | os.PathLike[str]) -> CompiledPlan:
    """Return a plan that came as an object, as canonical JSON or as the path of a file.

    Raises
    ------
    PlanError
        It cannot be read, or cannot be honoured.
    """
    if isinstance(plan, CompiledPlan):
        return plan
    if isinstance(plan, bytes):
        return CompiledPlan.from_json(plan)
    try:
        with open(os.fspath(plan), "rb") as file:
            content = file.read()
    except OSError as error:
        raise PlanError(f"the compiled plan cannot be read: {error}") from error
    return CompiledPlan.from_json(content)


def expected_plan(plan: CompiledPlan, expect: str | None) -> CompiledPlan:
    """Return a plan, if it is the one that an app has pinned.

    Raises
    ------
    ParameterError
        What is pinned is no fingerprint.
    PlanError
        The plan has another one.
    """
    if expect is None:
        return plan
    if not (isinstance(expect, str) and re.fullmatch(r"[0-9a-fA-F]{64}", expect)):
        raise ParameterError(
            "expect must be a plan's fingerprint, 64 hexadecimal digits, as sotto plan fingerprint "
            "prints it"
        )
    if plan.fingerprint_hex != expect.lower():
        raise PlanError(
            f"plan {plan.plan!r} version {plan.version} has the fingerprint "
            f"{plan.fingerprint_hex}, and this app expects {expect.lower()}: it is not the plan "
            "that the app was made for"
        )
    return plan


def checked_path(state: str | os.PathLike[str] | Forgetful) -> str | None:
    """Return where a device's file is to be, None if the app has named that it wants none.

    Raises
    ------
    ParameterError
        That is neither.
    """
    if state is NO_LIFETIME_BOUND:
        return None
    path = "" if state is None else os.fspath(state)
    if path in ("", ":memory:"):
        raise ParameterError(
            "state must be the path of a file; clientsdk.NO_LIFETIME_BOUND keeps everything in "
            "memory, and then nothing bounds what a device gives in more than one process"
        )
    return path


def checked_publisher(publisher: Publisher) -> Publisher:
    """Return what is to take messages.

    Raises
    ------
    ParameterError
        It is nothing that could, such as None or a class.
    """
    if isinstance(publisher, type) or not callable(getattr(publisher, "publish", None)):
        raise ParameterError("publisher must be an object with a method publish(shard, message)")
    return publisher


def checked_ceilings(ceilings: Ceilings) -> Ceilings:
    """Return ceilings that make sense.

    Raises
    ------
    ParameterError
        The period's is not positive, exceeds the lifetime's, or is so low that it must have been
        meant in epsilon.
    """
    if not 0 < ceilings.period <= ceilings.lifetime:
        raise ParameterError(
            f"ceilings: period {ceilings.period} must be above 0 and at most lifetime "
            f"{ceilings.lifetime} micro-epsilon"
        )
    if ceilings.period < LEAST_CEILING:
        raise ParameterError(
            f"ceilings: period {ceilings.period} micro-epsilon must be at least {LEAST_CEILING}; "
            f"Ceilings.of_epsilon takes epsilons"
        )
    return ceilings


def tell_if_nothing_fits(plan: CompiledPlan, ceilings: Ceilings) -> None:
    """Warn that no value of a plan can be recorded under the ceilings that are pinned."""
    least = min(metric.cost // metric.limit for metric in plan.metrics)
    if least > ceilings.period or all(
        max(metric.permanent, metric.cost // metric.limit) > ceilings.lifetime
        for metric in plan.metrics
    ):
        complaints.warn(
            "ceilings",
            "nothing can be recorded: one value costs %s micro-epsilon or more, and the pinned "
            "ceilings are %s a period and %s a lifetime, which only renew_consent can raise",
            str(least),
            str(ceilings.period),
            str(ceilings.lifetime),
        )


def checked_timeout(seconds: float) -> float:
    """Return how long to wait at most.

    Raises
    ------
    ParameterError
        It is below 0 or no number.
    """
    if not seconds >= 0:
        raise ParameterError(f"timeout {seconds} must be at least 0 seconds")
    return seconds
