"""Single values of a plan as it is written: amounts, durations, dates, texts and panels.

Each type takes what YAML makes of a value, or raises ValueError with what was expected.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from reprlib import Repr
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator

from sotto.plan.checks import MAX_PANEL
from sotto.plan.durations import parse_duration

#: Decimals of an epsilon, and digits before its point, at most.
_DECIMALS, _DIGITS = 6, 30

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 60
_REPR.maxdict = _REPR.maxlist = 3
_REPR.maxlevel = 1


def shown(value: object) -> str:
    """Return a value of a plan file as an error shows it: on one line, a long one shortened.

    >>> shown("half"), shown(Decimal("0.50")), shown([1, 2, 3, 4])
    ("'half'", '0.50', '[1, 2, 3, ...]')
    """
    return str(value) if isinstance(value, Decimal | date) else _REPR.repr(value)


def _micro(value: object) -> int:
    """Return micro-epsilon: exactly what is written, or an error."""
    number = _decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value} must be finite")
    if not number:
        return 0
    size = number.adjusted()
    if size >= _DIGITS:
        raise ValueError(f"{shown(value)} is too large: at most {_DIGITS} digits are allowed")
    # A number that is far too small is not even written out as a fraction.
    micro = Fraction(number) * 10**_DECIMALS if size >= -_DECIMALS else None
    if micro is None or micro.denominator != 1:
        raise ValueError(
            f"{shown(value)} must have at most {_DECIMALS} decimals: amounts are millionths"
        )
    return int(micro)


def _decimal(value: object) -> Decimal:
    """Return a number; text may be one too, since YAML takes numbers such as 1e3 for text."""
    if isinstance(value, int | float | str | Decimal) and not isinstance(value, bool):
        with suppress(InvalidOperation):
            return Decimal(str(value))
    raise ValueError(f"{shown(value)} must be a number")


def _date(value: object) -> date:
    if isinstance(value, str):
        with suppress(ValueError):
            value = date.fromisoformat(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError(f"{shown(value)} must be a date such as 2027-06-30")
    return value


def _text(value: object) -> object:
    if isinstance(value, dict | list):
        raise ValueError(f"{shown(value)} must be a text")
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text for YAML: write it in quotes")
    if "\0" in value:
        # Databases cannot hold it, and results could not be written.
        raise ValueError(f"{shown(value)} has a NUL character, which text cannot have")
    return value


def _words(value: object) -> object:
    """Return text on one line: YAML's folded and indented texts have line breaks at their end."""
    value = _text(value)
    return " ".join(value.split()) if isinstance(value, str) else value


def _panel(value: object) -> int:
    """Return the N of ``1/N``; 1, which is every period, may be written without a fraction."""
    text = str(value) if type(value) in (int, str) else ""
    found = re.fullmatch(r"1(?:/([1-9][0-9]{0,3}))?", text)
    size = int(found[1] or 1) if found else 0
    if not 1 <= size <= MAX_PANEL:
        raise ValueError(
            f"{shown(value)} must be 1/N with a whole number N in [1, {MAX_PANEL}], such as 1/13, "
            f"or 1 for every period"
        )
    return size


Micro: TypeAlias = Annotated[int, BeforeValidator(_micro)]
Duration: TypeAlias = Annotated[int, BeforeValidator(parse_duration)]
Number: TypeAlias = Annotated[float, BeforeValidator(lambda value: float(_decimal(value)))]
Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Words: TypeAlias = Annotated[str, BeforeValidator(_words)]
Panel: TypeAlias = Annotated[int, BeforeValidator(_panel)]
Day: TypeAlias = Annotated[date, BeforeValidator(_date)]
