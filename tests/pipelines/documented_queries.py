"""The queries of docs/guides/results.md, and their rows in a form that engines share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "results.md"
#: Devices of the small job on which they are run.
DEVICES = 150


def queries() -> list[str]:
    """Return the blocks of SQL, in order."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def comparable(rows: Iterable[Sequence[object]]) -> list[tuple[object, ...]]:
    """Return rows in which times and numbers of all engines are equal."""
    return [tuple(_value(value) for value in row) for row in rows]


def _value(value: object) -> object:
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
        return int(datetime.fromisoformat(value).timestamp() * 1000)
    return round(value, 9) if isinstance(value, float) else value
