"""The kill switch: a client that is switched off by ``SOTTO_DISABLED`` or its settings."""

from __future__ import annotations

from typing import NoReturn

from clientsdk.outcomes import Outcome, Refusal
from clientsdk.store import NEVER
from sotto.errors import StoreError

#: What becomes of every value.
REFUSAL = Refusal(Outcome.DISABLED, NEVER)


def refuse(what: str) -> NoReturn:
    """Say that something cannot be done, since no file may be touched.

    Raises
    ------
    StoreError
        Always.
    """
    raise StoreError(f"{what}: the SDK is switched off (SOTTO_DISABLED or its settings)")
