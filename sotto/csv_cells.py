"""Cells of CSV files, which people open in spreadsheets."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

#: The places of a text where a spreadsheet sees a formula (OWASP, "CSV Injection"): its beginning,
#: and behind what may separate cells. A semicolon does in countries that write decimals with a
#: comma; there a quote behind a comma does not begin a cell, so that a line's end is one too.
_FORMULA = re.compile(r"\A(?=[\t\r\n])|(?:\A|(?<=[;\t\r\n]))(?=[=+\-@])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def csv_cell(value: object) -> object:
    """Return what a cell holds: what a spreadsheet would compute of a text has ``'`` before it.

    Lists and booleans are JSON. A text that is a number stays one.

    >>> [csv_cell(each) for each in ("=1+1", "-30.0", -0.5, "@x", [1], True, "a=b", None)]
    ["'=1+1", '-30.0', -0.5, "'@x", '[1]', 'true', 'a=b', None]
    >>> [csv_cell(each) for each in ("a;=1+1", "a; b", "a\\n=1")]
    ["a;'=1+1", 'a; b', "a\\n'=1"]
    """
    if isinstance(value, list | bool):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return _FORMULA.sub("'", value)
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
