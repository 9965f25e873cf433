"""Telemetry never stops an app: errors that are logged, and a client that could not be made."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable

from clientsdk import diagnostics
from clientsdk.outcomes import Consent, Outcome, Refusal
from clientsdk.settings import ON_ERROR, Settings
from sotto.errors import (
    ParameterError,
    PlanError,
    SottoError,
    StoreError,
    ValueTypeError,
    did_you_mean,
)
from sotto.plan.compiled import Ceilings, CompiledPlan, check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.sending.tasks import Result
    from clientsdk.stats import OutcomeTally

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
NOT_RECORDED = (
    "values are not recorded without consent: it was not given, or was withdrawn; call "
    "give_consent() where the person agrees"
)
#: The suffix, after a state file's name, of the file with the document that was answered.
ASKED = "-asked"
#: Under which recordings are counted whose metric the plan does not have: no metric's name.
UNKNOWN_METRIC = "(unknown)"


class ErrorPolicy:
    """Whether one client raises its errors or, if it is ``lenient``, logs and counts them.

    ``why`` says why the client is disabled, None if it is not; ``off`` whether a switch did it.
    """

    def __init__(self, tally: OutcomeTally, why: str | None, off: bool) -> None:
        self._tally = tally
        self._off = off
        self.why = why
        self.lenient = False

    def attempt(
        self, call: Callable[[], Result], instead: Callable[[SottoError], Result]
    ) -> Result:
        """Return what a call returns or, if it fails and that is not to be raised, another."""
        try:
            return call()
        except Exception as error:
            # Not of ours alone: an import may fail too, for want of a descriptor.
            if not self.lenient:
                raise
            reason = reason_of(error)
            diagnostics.warn("store", "telemetry does not work now: %s", reason)
            return instead(error if isinstance(error, SottoError) else StoreError(reason))

    def count_invalid(self, metric: str, reason: str) -> Outcome:
        """Count a recording that an app should not have made, or that failed unexpectedly."""
        if self.why is not None:
            return self._tally.count(Outcome.DISABLED, metric)
        # Each metric is named once: another one's mistake is another.
        diagnostics.warn(f"invalid {metric}", "a value is not recorded: %s", reason, quiet=math.inf)
        return self._tally.count(Outcome.INVALID, metric)

    def refuse_if_switched_off(self, what: str) -> None:
        if self._off:
            raise StoreError(f"{what}: {self.why}")


def switched_off(settings: Settings, *, simulated: bool) -> str:
    """Return why a client with settings that disable it does nothing: a variable, or the app."""
    by = settings.switched_off_by(simulated=simulated)
    return f"the SDK is switched off ({by or 'Settings(disabled=True)'})"


def raises(on_error: str) -> bool:
    """Whether errors are raised: where the app or the environment wants it."""
    if on_error not in ("disable", "raise"):
        raise ParameterError("on_error must be 'disable' or 'raise'")
    said = os.environ.get(ON_ERROR, "").strip().lower()
    if said not in ("", "disable", "raise"):
        diagnostics.warn(ON_ERROR, f"{ON_ERROR} is not used: say raise or disable", quiet=math.inf)
    return "raise" in (on_error, said)


def check_options(given: Iterable[str], known: Collection[str]) -> None:
    """Raise ParameterError for one that a client does not have: else a TypeError would say it, of
    which only the name may be logged.
    """
    unknown = sorted(set(given).difference(known))
    if unknown:
        near = did_you_mean(unknown[0], known)
        raise ParameterError(f"a client has no option {', '.join(unknown)}{near}")


def reason_of(error: Exception) -> str:
    """Return why a client is disabled, without what may hold a value or a path of the user's."""
    # A ModuleNotFoundError says which optional package is missing.
    known = isinstance(error, SottoError | ModuleNotFoundError)
    return str(error) if known else type(error).__name__


def counted_under(name: object, error: BaseException) -> str:
    """Return the metric that an invalid value is counted under, whose name the app gave.

    A label must hold no value, and an app may have passed one in the place of the name.
    """
    wrong_value = isinstance(error, ValueTypeError) and isinstance(name, str)
    return str.__str__(name) if wrong_value else UNKNOWN_METRIC


def if_usable(read: Callable[[], Result], otherwise: Result) -> Result:
    """Return what is read of an app's argument, or ``otherwise`` if that fails."""
    try:
        return read()
    except Exception:
        return otherwise


def plan_if_honoured(plan: CompiledPlan) -> CompiledPlan:
    """Return a plan that was read unchecked if it is sound, else the one that stands for none."""
    try:
        check(plan)
        return plan
    except PlanError:
        # The one that stands for none too, since it has no metric.
        return NO_PLAN


def refusals(
    plan: CompiledPlan, outcome: Outcome, stale: float | None = None
) -> dict[str, Refusal]:
    """Return what becomes of every value, by metric, where all of them have one outcome."""
    return {each.name: Refusal(outcome, each.plain, None, 0, stale) for each in plan.metrics}


def said(file: str, plan: CompiledPlan, own: Ceilings, now: Callable[[], int]) -> Consent | None:
    """Return what was said at a device whose store need not be opened; None if it has to be.

    That nothing beside an absent file is there was looked at before: see :func:`is_unused`.
    """
    if os.path.lexists(file):
        from clientsdk.store import idle

        return idle.said(file, plan, own, now())
    lost = os.path.lexists(file + "-mark") or not _may_be_made(file)
    return None if lost else Consent.NEVER_GIVEN


def is_unused(file: str) -> bool:
    """Whether nobody has said anything at a state file yet, nor could it have been lost.

    Neither the file nor anything beside it is there, and it could be made.
    """
    folder, name = os.path.split(file)
    try:
        beside = [each for each in os.listdir(folder) if each.startswith(name)]
    except OSError:
        return False
    return beside in ([], [name + ASKED]) and _may_be_made(file)


def _may_be_made(file: str) -> bool:
    return os.access(os.path.dirname(file), os.W_OK | os.X_OK)
