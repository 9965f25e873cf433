"""Metrics with typed values, which the modules that ``sotto plan generate`` writes are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

from clientsdk.client import Client
from clientsdk.diagnostics import drop_locals
from clientsdk.outcomes import Outcome
from sotto.errors import PlanError, ValueTypeError, wrong_type

Value = TypeVar("Value", contravariant=True)


class Measured:
    """A metric that the device measures by itself; ``name`` is as in the plan."""

    __slots__ = ("_client",)

    name: ClassVar[str]

    def __init__(self, client: Client) -> None:
        self._client = client

    def _hand_in(self, method: Callable[[str, Any], Outcome], value: object) -> Outcome:
        try:
            return method(self.name, value)
        except ValueTypeError as error:
            # Neither this frame nor those that the error came through keep the value.
            del value
            raise error.with_traceback(None) from None
        except BaseException as error:
            # Also an interrupt.
            del value
            drop_locals(error)
            raise


class Metric(Measured, Generic[Value]):
    """One metric of a plan, bound to a client; ``name`` is what its values are recorded by."""

    __slots__ = ()

    def record(self, value: Value) -> Outcome:
        """Do what :meth:`clientsdk.Client.record` does with this metric's name."""
        try:
            return self._hand_in(self._client.record, value)
        finally:
            del value


class Counted(Measured):
    """A metric that measures whether, how often or on how many days the event ``name`` happens."""

    __slots__ = ()

    def count(self, times: int = 1) -> Outcome:
        """Do what :meth:`clientsdk.Client.count` does with this metric's event."""
        try:
            return self._hand_in(self._client.count, times)
        finally:
            del times


class Funnel(Measured, Generic[Value]):
    """A metric that measures the furthest step of a period."""

    __slots__ = ()

    def reach(self, step: Value) -> Outcome:
        """Do what :meth:`clientsdk.Client.reach` does with this metric's name."""
        try:
            return self._hand_in(self._client.reach, step)
        finally:
            del step


def check_plan(client: Client, plan: bytes) -> None:
    """Raise PlanError if a client, unless disabled, records under another plan than a module's."""
    if not isinstance(client, Client):
        raise wrong_type("client", "a Client", client)
    has = client.plan
    if has.to_json() != plan and not client.settings.disabled:
        raise PlanError(
            f"the client records under plan {has.plan!r}, version {has.version}, fingerprint "
            f"{has.fingerprint.hex()[:8]}, which is not what these metrics were made from: hand "
            f"it PLAN of their module"
        )
