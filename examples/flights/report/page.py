"""Pieces of the report's HTML: sections, figures, tables, keys."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

ESTIMATE_KEY = (
    '<line x1="3" y1="8" x2="31" y2="8" class="interval"/>'
    '<circle cx="17" cy="8" r="4" class="estimate"/>'
)
TRUTH_KEY = '<line x1="17" y1="1" x2="17" y2="15" class="truth"/>'
EVERY_KEY = '<line x1="17" y1="1" x2="17" y2="15" class="every"/>'
EVERY_LINE_KEY = '<line x1="3" y1="8" x2="31" y2="8" class="every"/>'


def stroke_key(style: str) -> str:
    """Return a key's horizontal stroke of a class."""
    return f'<line x1="3" y1="8" x2="31" y2="8" class="{style}"/>'


def swatch_key(style: str) -> str:
    """Return a key's filled swatch of a class."""
    return f'<rect x="10" y="2" width="14" height="12" class="{style}"/>'


def ring_key(style: str) -> str:
    """Return a key's circle of a class."""
    return f'<circle cx="17" cy="8" r="6.5" class="{style}"/>'


def key(*entries: tuple[str, str]) -> str:
    """Return a legend: pairs of an SVG mark and what it stands for."""
    items = "".join(
        f'<li><svg viewBox="0 0 34 16" aria-hidden="true">{mark}</svg>{escape(text)}</li>'
        for mark, text in entries
    )
    return f'<ul class="key">{items}</ul>'


def figure(chart: str, caption: str = "", title: str = "", wide: bool = False) -> str:
    """Return a figure; a ``wide`` one scrolls on a narrow screen instead of shrinking."""
    body = f'<div class="scroll">{chart}</div>' if wide else chart
    head = f"<h3>{title}</h3>" if title else ""
    foot = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{head}{body}{foot}</figure>"


def side_by_side(*figures: str, columns: int = 2) -> str:
    """Return figures beside one another where there is room."""
    return f'<div class="{"triple" if columns == 3 else "pair"}">{"".join(figures)}</div>'


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    """Return a table; columns in ``numbers`` are aligned to the right. Cells are HTML."""

    def cells(line: Sequence[str], tag: str) -> str:
        right = f'<{tag} class="n">'
        return "".join(
            f"{right if place in numbers else f'<{tag}>'}{cell}</{tag}>"
            for place, cell in enumerate(line)
        )

    body = "".join(f"<tr>{cells(line, 'td')}</tr>" for line in lines)
    return (
        f'<div class="table"><table><thead><tr>{cells(heads, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def tiles(entries: Sequence[tuple[str, str]]) -> str:
    """Return headline figures: pairs of a number and what it counts."""
    body = "".join(
        f'<div class="tile"><b>{number}</b><span>{escape(text)}</span></div>'
        for number, text in entries
    )
    return f'<div class="tiles">{body}</div>'


def section(title: str, *parts: str) -> str:
    """Return one section of the page."""
    return f"<section><h2>{title}</h2>{''.join(parts)}</section>"


def document(title: str, style: str, body: str) -> str:
    """Return the page: everything inline, nothing fetched."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )
