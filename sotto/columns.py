"""Text in columns, and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from mechanisms.exact import MICRO
from sotto.clocks import minute
from sotto.plan.checks import in_line

T = TypeVar("T")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out rows in columns: text to the left, columns of numbers to the right.

    Examples
    --------
    >>> table(["metric", "epsilon"], [["carrier", "0.5"], ["late", "12.25"]])
    ['metric   epsilon', 'carrier      0.5', 'late       12.25']
    """
    cells = [list(head), *map(list, rows)]
    right = [all(_is_number(row[column]) for row in cells[1:]) for column in range(len(head))]
    return aligned(cells, right)


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    r"""Lay out rows in columns, those of numbers to the right.

    No cell can move another one, whatever a terminal makes of what it holds.

    >>> aligned([["dark\x1b[8m", "1"]], [False, True])
    ["'dark\\x1b[8m'  1"]
    """
    rows = [[*map(in_line, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell == "infinite"


def columns(rows: Sequence[T], cells: Mapping[str, Callable[[T], str | None]]) -> list[str]:
    """Lay out a column for each head; one of which a cell is None is left out."""
    made = {head: [cell(row) for row in rows] for head, cell in cells.items()}
    shown = {head: [str(cell) for cell in made[head]] for head in made if None not in made[head]}
    return table(list(shown), zip(*shown.values(), strict=True))


def exact(micro: int) -> str:
    """Return micro-epsilon as epsilon, with all its digits.

    >>> exact(500_000)
    '0.500000'
    """
    return f"{micro / MICRO:.6f}"


def epsilon(micro: int) -> str:
    """Return micro-epsilon as people write epsilon: exactly, without zeros at the end.

    >>> epsilon(1_500_000), epsilon(2_000_000), epsilon(1)
    ('1.5', '2', '0.000001')
    """
    return f"{micro // MICRO}.{micro % MICRO:06d}".rstrip("0").rstrip(".")


def number(value: float) -> str:
    """Return three significant digits.

    >>> number(0.012345), number(1234.5), number(0.00001)
    ('0.0123', '1,234', '1e-05')
    """
    if value >= 100 or (value and math.isclose(value, round(value), rel_tol=1e-12)):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def time_text(time: int) -> str:
    """Return a time, in milliseconds since the epoch, to the minute in UTC; a day if it is one.

    >>> time_text(1_370_044_800_000), time_text(1_370_045_700_000), time_text(1 << 62)
    ('2013-06-01', '2013-06-01 00:15', '4611686018427387904 ms')
    """
    return minute(time).removesuffix(" 00:00")
