"""Steps of scenarios, and the times at which they are made."""

from __future__ import annotations

from typing import Any

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
#: Within a budget period, not at its beginning.
START = 2888 * WEEK + 2 * DAY + 123_456
#: From when on plan "soon" has expired.
EXPIRY = 2888 * WEEK + 5 * DAY


Step = dict[str, Any]


def open_(at: int = START, plan: str = "device", **more: Any) -> Step:
    return {"do": "open", "plan": plan, "at": at, **more}


def record(metric: str, at: int = START, value: Any = "red", **more: Any) -> Step:
    return {"do": "record", "metric": metric, "value": value, "at": at, **more}


def flush(at: int, **more: Any) -> Step:
    return {"do": "flush", "at": at, **more}


def round_(at: int, choice: int, chance: tuple[int, int] = (1, 2), **more: Any) -> Step:
    given = {"window": HOUR, "choice": choice, "chance": list(chance)}
    return {"do": "round", "at": at, **given, **more}


def restore(what: str) -> Step:
    return {"do": "restore", "what": what, "from": "copy"}


def lose(what: str) -> Step:
    return {"do": "lose", "what": what}


AGREE: Step = {"do": "agree"}
AGAIN: Step = {"do": "agree", "again": True}
WITHDRAW: Step = {"do": "withdraw"}
CLOSE: Step = {"do": "close"}
COPY: Step = {"do": "copy", "to": "copy"}
OPENED = [open_(), AGREE]
