"""The arm of a plan's experiment as a flag of OpenFeature, and tracked events as recordings.

The flag has the experiment's name; its value is the arm, as text, or of an experiment with two arms
whether it is the second one. The device decides which arm it is in, from no context: evaluation
contexts are never looked at. Needs ``openfeature-sdk``, which the extra ``openfeature`` brings.

>>> from openfeature import api
>>> from clientsdk.testing import SeededClient, small_plan
>>> api.set_provider_and_wait(SottoFeatureProvider(SeededClient(small_plan(), seed=1)))
>>> api.get_client().get_string_value("onboarding", "control")
'control'
>>> api.clear_providers()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata
from openfeature.track import TrackingEventDetails

from clientsdk import diagnostics
from clientsdk.client import Client
from clientsdk.disabled import reason_of
from sotto.errors import SottoError, wrong_type
from sotto.plan.metric import CompiledMetric
from sotto.plan.segments import Experiment

Context = EvaluationContext | None


class SottoFeatureProvider(AbstractProvider):
    """A provider of flags on a client, which it neither makes nor closes; it never raises.

    A device that takes part in no experiment, or whose person has not agreed, has the flag's
    default. Any other flag is not found, so that a provider behind this one may have it.

    Privacy
    -------
    The arm is sent in the clear with every report, and an app that shows it discloses it. An event
    is recorded whatever its value: track each one with a value, since one that is only tracked if
    something has happened tells that it has.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        if not isinstance(client, Client):
            raise wrong_type("client", "a Client", client)
        self._client = client

    def get_metadata(self) -> Metadata:
        """Return the provider's name."""
        return Metadata("sotto")

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: Context = None
    ) -> FlagResolutionDetails[str]:
        """Return the arm."""
        return self._resolved(flag_key, default_value, lambda arms, arm: arm)

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: Context = None
    ) -> FlagResolutionDetails[bool]:
        """Return whether the device is in the second of two arms."""

        def is_second(arms: Sequence[str], arm: str) -> bool | None:
            return arm == arms[1] if len(arms) == 2 else None

        return self._resolved(flag_key, default_value, is_second)

    def _resolve_other_details(
        self, flag_key: str, default_value: Any, evaluation_context: Context = None
    ) -> FlagResolutionDetails[Any]:
        """Return the default: an arm is no number and no object."""
        return self._resolved(flag_key, default_value, lambda arms, arm: None)

    resolve_integer_details = resolve_float_details = _resolve_other_details
    resolve_object_details = _resolve_other_details

    def _resolved(
        self, flag: str, default: Any, value_of: Callable[[Sequence[str], str], Any]
    ) -> FlagResolutionDetails[Any]:
        experiment: Experiment | None = self._client.plan.experiment
        if experiment is None or experiment.name != flag:
            return _failed(default, ErrorCode.FLAG_NOT_FOUND, "the plan has no such experiment")
        if value_of(experiment.arms, experiment.arms[0]) is None:
            said = "an arm is a text, or one of two a bool: resolve the flag as such"
            return _failed(default, ErrorCode.TYPE_MISMATCH, said)
        try:
            arm = self._client.arm(flag)
        except SottoError as error:
            return _failed(default, ErrorCode.GENERAL, str(error))
        if arm is None:
            return FlagResolutionDetails(default, reason=Reason.DEFAULT)
        value = value_of(experiment.arms, arm)
        return FlagResolutionDetails(value, reason=Reason.SPLIT, variant=arm)

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: Context = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Record the event's value under its name; drop an event of which the plan has nothing.

        Measures that take values of that name are fed as by ``record``. Of booleans and surveys any
        value but 0 is true. The attributes are not looked at.
        """
        client = self._client
        name = tracking_event_name
        types = {each.type for each in client.plan.metrics if name in _recorded_as(each)}
        if not types:
            measures = [each.measure for each in client.plan.measured if each.measure]
            if any((each.method, each.of) == ("count", name) for each in measures):
                said = f"event {name} is not recorded: the plan counts it, so call count({name!r})"
                diagnostics.warn(f"openfeature {name}", said, quiet=math.inf)
            return
        value: Any = None
        try:
            if tracking_event_details is not None:
                value = tracking_event_details.value
            if value is not None and types <= {"boolean", "survey"}:
                value = bool(value)
            client.record(name, value)
        except BaseException as error:
            # Also an interrupt: this frame does not keep the value.
            del value, tracking_event_details
            if not isinstance(error, Exception):
                raise
            client._errors.count_invalid(name, reason_of(error))


def _recorded_as(metric: CompiledMetric) -> tuple[str, ...]:
    """Return a metric's name, and that of the values that its measure takes."""
    measure = metric.measure
    return (metric.name, measure.of) if measure and measure.method == "record" else (metric.name,)


def _failed(default: Any, code: ErrorCode, said: str) -> FlagResolutionDetails[Any]:
    return FlagResolutionDetails(default, code, said, Reason.ERROR)
