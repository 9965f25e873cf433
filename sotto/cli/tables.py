"""Text in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay out rows in columns: text to the left, columns of numbers to the right.

    Examples
    --------
    >>> table(["metric", "epsilon"], [["carrier", "0.5"], ["late", "12.25"]])
    ['metric   epsilon', 'carrier      0.5', 'late       12.25']
    """
    cells = [list(head), *map(list, rows)]
    columns = range(len(head))
    widths = [max(len(row[column]) for row in cells) for column in columns]
    right = [all(_number(row[column]) for row in cells[1:]) for column in columns]
    return [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]


def _number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell == "infinite"
