"""What the documents of a topic of estimates have for fields, and what each must be.

Only what every database can store is taken: whoever may write to a topic must not be able to stop
those who read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sotto.errors import FormatError

SCHEMA = 1
#: When a window was published: before its end by the log's clock, as the clock passed it, after.
PANES = ("early", "on_time", "late")

Check: TypeAlias = Callable[[object], bool]


def require(said: object, fields: Mapping[str, Check], place: str) -> None:
    """Return if an object has these fields and no others; values are not put into errors."""
    if not isinstance(said, dict) or said.keys() != fields.keys():
        raise FormatError(f"{place}: not the fields of one")
    for name, holds in fields.items():
        if not holds(said[name]):
            raise FormatError(f"{place}: a field is not what it must be: {name}")


def _text(value: object) -> bool:
    # No database takes these as text.
    return isinstance(value, str) and "\0" not in value and not _surrogate(value)


def _surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(as_float(value) or 0.0)


def as_float(value: object) -> float | None:
    """Return a number of JSON as a float, infinite if it is too large for one."""
    try:
        return None if value is None else float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def _or_null(holds: Check) -> Check:
    return lambda value: value is None or holds(value)


def _list_of(holds: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(holds, value))


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _mapping(value: object) -> bool:
    return isinstance(value, dict) and all(map(_text, value))


def _offsets(value: object) -> bool:
    return _mapping(value) and all(map(natural, value.values()))  # type: ignore[attr-defined]


_time = _whole(-(2**63), 2**63 - 1)
natural = _whole(0, 2**63 - 1)
_small = _whole(0, 2**31 - 1)

COMMON: dict[str, Check] = {
    "collector": _text,
    "plan": _text,
    "version": _small,
    "metric": _text,
    "window_start": _time,
    "window_end": _time,
}
WINDOW: dict[str, Check] = {
    **COMMON,
    "type": _text,
    "mechanism": _text,
    "n": natural,
    "reports_by_level": _list_of(natural),
    "minimum_reports": _or_null(natural),
    "withheld": _or_null(_text),
}
FLOATS = ("value", "standard_error", "low", "high", "display", "detection_floor", "p_value")
ESTIMATE: dict[str, Check] = {
    "kind": _text,
    "item": _text,
    "position": _small,
    **dict.fromkeys(FLOATS, _or_null(_number)),
    "n": natural,
    "reports_by_level": _list_of(natural),
    "significant": _or_null(_flag),
    "confounded_with": _or_null(_list_of(_text)),
    "unit": _or_null(_text),
    "method": _or_null(_text),
    "withheld": _or_null(_text),
}
#: Fields that documents did not have at first; null where they are left out.
LATER = {"window": ("minimum_reports", "withheld"), "estimates": ("withheld",)}
PERIOD: dict[str, Check] = {
    "collector": _text,
    "period_start": _time,
    "period_end": _time,
    "closed": _flag,
    **dict.fromkeys(
        (
            "pseudonyms",
            "chains",
            "accepted",
            "observed",
            "most_accepted",
            "most_observed",
            "over_budget",
            "equivocation",
        ),
        natural,
    ),
}
#: The fields of a health document: all but the last are numbers or null.
HEALTH: dict[str, Check] = {
    **dict.fromkeys(
        (
            "reports",
            "counted",
            "superseded",
            "duplicates",
            "revoked",
            "state_bytes",
            "chains",
            "pseudonyms",
        ),
        _or_null(_time),
    ),
    "clock": _or_null(_time),
    "offsets": _or_null(_offsets),
}
_ALL: dict[str, Check] = {
    "schema": _whole(SCHEMA, SCHEMA),
    "kind": _text,
    "job": lambda value: _text(value) and value != "",
    "revision": _whole(1, 2**63 - 1),
}
KINDS: dict[str, dict[str, Check]] = {
    "window": {
        **_ALL,
        "pane": lambda value: value in PANES,
        "window": _mapping,
        "estimates": _list_of(_mapping),
    },
    "period": {**_ALL, "period": _mapping},
    "rejects": {
        **_ALL,
        "collector": _text,
        "rejects": _mapping,
        "requeued": _or_null(_mapping),
    },
    "health": {**_ALL, "collector": _text, "health": _mapping},
}
KEYS = {
    "window": ("collector", "plan", "version", "metric", "window_start"),
    "period": ("collector", "period_start"),
    "rejects": ("collector",),
    "health": ("collector",),
}
