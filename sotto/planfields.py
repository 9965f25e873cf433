"""The values of a plan file's fields: what each may be in itself, and what it becomes."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict

from sotto.durations import parse_duration

_MICRO = 1_000_000


def _micro(value: object) -> int:
    """Return micro-epsilon: exactly what is written, or an error."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("must be a number")
    try:
        micro = Decimal(str(value)) * _MICRO
    except InvalidOperation:
        raise ValueError(f"{value!r} must be a number") from None
    if not micro.is_finite():
        raise ValueError(f"{value} must be finite")
    if micro != micro.to_integral_value():
        raise ValueError(f"{value} must have at most 6 decimals: amounts are millionths")
    return int(micro)


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("must be a number")
    return float(value)


def _date(value: object) -> date:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError("must be a date such as 2027-06-30")
    return value


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text for YAML: write it in quotes")
    return value


Micro: TypeAlias = Annotated[int, BeforeValidator(_micro)]
Duration: TypeAlias = Annotated[int, BeforeValidator(parse_duration)]
Number: TypeAlias = Annotated[float, BeforeValidator(_finite)]
Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Day: TypeAlias = Annotated[date, BeforeValidator(_date)]


class Model(BaseModel):
    """A mapping of a plan file: unknown keys are refused, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
