"""The choice to keep no state file, which an app has to name."""

from __future__ import annotations

from enum import Enum


class Forgetful(Enum):
    """What ``Client(state=...)`` takes instead of a path."""

    NO_LIFETIME_BOUND = "no lifetime bound survives this process"
    """Keeps everything in memory. With the client its ledger, ceilings, pseudonym and what was not
    sent are gone; so is a withdrawal of consent. Every other client, also in the same process, is a
    new device with a whole lifetime to spend: what one person gives over many has no bound."""


NO_LIFETIME_BOUND = Forgetful.NO_LIFETIME_BOUND
