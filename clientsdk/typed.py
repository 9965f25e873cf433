"""Metrics with typed values, which the modules that ``sotto plan generate`` writes are made of."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from clientsdk.client import Client
from clientsdk.diagnostics import drop_locals
from clientsdk.outcomes import Outcome
from sotto.errors import PlanError, ValueTypeError

Value = TypeVar("Value", contravariant=True)


class Metric(Generic[Value]):
    """One metric of a plan, bound to a client; ``name`` is as in the plan."""

    __slots__ = ("_client",)

    name: ClassVar[str]

    def __init__(self, client: Client) -> None:
        self._client = client

    def record(self, value: Value) -> Outcome:
        """Do what :meth:`clientsdk.Client.record` does with this metric's name."""
        try:
            return self._client.record(self.name, value)
        except ValueTypeError as error:
            # Neither this frame nor those that the error came through keep the value.
            del value
            raise error.with_traceback(None) from None
        except BaseException as error:
            # Also an interrupt.
            del value
            drop_locals(error)
            raise


def check_plan(client: Client, plan: bytes) -> None:
    """Raise PlanError if a client, unless disabled, records under another plan than a module's."""
    has = client.plan
    if has.to_json() != plan and not client.settings.disabled:
        raise PlanError(
            f"the client records under plan {has.plan!r}, version {has.version}, fingerprint "
            f"{has.fingerprint.hex()[:8]}, which is not what these metrics were made from: hand "
            f"it PLAN of their module"
        )
