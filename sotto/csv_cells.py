"""Cells of CSV files, which people open in spreadsheets."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

#: A text that begins so is a formula in a spreadsheet (OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def csv_cell(value: object) -> object:
    """Return what a cell holds: a text that a spreadsheet would compute has ``'`` before it.

    Lists and booleans are JSON. A text that is a number stays one.

    >>> [csv_cell(each) for each in ("=1+1", "-30.0", -0.5, "@x", [1], True, "a=b", None)]
    ["'=1+1", '-30.0', -0.5, "'@x", '[1]', 'true', 'a=b', None]
    """
    if isinstance(value, list | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def write_csv_rows(
    file: TextIO, names: Sequence[str], rows: Iterable[Mapping[str, object]]
) -> None:
    """Write a line of names, and a line a row."""
    writer = csv.DictWriter(file, names, lineterminator="\n")
    # Python before 3.13 quotes the end of a line alone, and readers end one at "\r" too.
    quoting = csv.DictWriter(file, names, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for row in rows:
        odd = any(isinstance(value, str) and "\r" in value for value in row.values())
        (quoting if odd else writer).writerow({key: csv_cell(each) for key, each in row.items()})
