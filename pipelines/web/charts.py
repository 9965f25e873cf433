"""Charts as inline SVG: matplotlib draws them, the page's stylesheet colours them.

A dot is an estimate and the line through it its interval of 95 %. No chart has a style attribute
or element, so that pages can forbid these; a mark says its numbers in its title.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipelines.web.formats import day, number, writer_of

_DAY = 86_400
#: Widths in the units of the SVG, which are pixels where there is room.
NARROW, WIDE = 440, 1000

# Stand-ins: the stylesheet's variable of the same name takes the place of each in the SVG.
_NAMES = "ink soft faint card estimate wash truth every bad level0 level1 level2 level3 level4"
_VARIABLES = {f"#0000{at:02x}": name for at, name in enumerate(_NAMES.split(), 1)}
INK, SOFT, FAINT, CARD, ESTIMATE, WASH, TRUTH, EVERY, BAD, *_LEVELS = _VARIABLES

_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sotto",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.left": False,
    "lines.solid_capstyle": "round",
    "text.color": SOFT,
    # A name may have a dollar sign in it.
    "text.parse_math": False,
}
#: The style is the process's, and read until the figure is written.
_DRAWING = threading.Lock()
_ALLOWED = re.compile(r"(fill|stroke|opacity|clip|text-anchor|font-size|font-weight)[a-z-]*")
#: Characters of a name that a chart shows.
_NAME = 28
#: Room around what is drawn, in pixels, and for numbers and for a letter at the left.
_ABOVE, _BELOW, _RIGHT, _NUMBERS, _LETTER = 26, 44, 32, 56, 6.6


def level_colours(levels: int) -> list[str]:
    """Return a colour for each level, the last one the strongest."""
    last = len(_LEVELS) - 1
    if levels == 1:
        return [_LEVELS[last]]
    return [_LEVELS[round(level * last / (levels - 1))] for level in range(levels)]


def level_names(levels: int) -> list[str]:
    """Return the stylesheet's names of these colours."""
    return [_VARIABLES[colour] for colour in level_colours(levels)]


def chart(
    title: str,
    draw: Callable[..., None],
    width: float = NARROW,
    height: float = 270,
    parts: Sequence[float] = (1,),
    left: float | None = None,
) -> Markup:
    """Let ``draw`` fill axes and return their SVG.

    Parameters
    ----------
    title : str
        What the chart shows: its accessible name.
    draw : callable
        Is given one axes a part, from the top.
    width, height : float
        In pixels.
    parts : sequence of float
        Heights of axes with one horizontal scale, relative to each other.
    left : float, optional
        Room for what is written at the left, in pixels. Without it all text is measured, which
        takes half as long again.
    """
    with _DRAWING, mpl.rc_context(_STYLE), warnings.catch_warnings():
        # The page's font has characters that the one which measures them has not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        layout: Literal["constrained"] | None = "constrained" if left is None else None
        figure = Figure((width / 72, height / 72), layout=layout)
        if left is not None:
            figure.subplots_adjust(
                left / width, _BELOW / height, 1 - _RIGHT / width, 1 - _ABOVE / height, hspace=0.34
            )
        grid = figure.subplots(len(parts), 1, sharex=True, squeeze=False, height_ratios=parts)
        draw(*grid[:, 0])
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img"><title>{escape(title)}</title>'
        f"{_of_the_page(file.getvalue())}"
    )


def warm_up() -> None:
    """Load fonts and whatever else the first chart of a process waits for."""
    chart("", lambda axes: scale(axes, "x", number, ""), height=100)


def _of_the_page(svg: str) -> str:
    """Return what is inside matplotlib's SVG, without styles, and with the page's colours."""
    svg = svg[svg.index(">", svg.index("<svg")) + 1 :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="title-([0-9a-f]*)">', _title, svg)
    svg = re.sub(r'<g id="[\w.]+_\d+">', "<g>", svg)
    svg = re.sub(r' style="([^"]*)"', _attributes, svg)
    for colour, name in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


def _attributes(style: re.Match[str]) -> str:
    """Return the declarations of a style attribute as attributes of their own."""
    made = []
    for declaration in style[1].split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font" and (size := re.search(r"([\d.]+)px", value)):
            made.append(f'font-size="{size[1]}"')
            made += ['font-weight="bold"'] if re.match(r"(bold|[6-9]00) ", value) else []
        elif _ALLOWED.fullmatch(name):
            made.append(f'{name}="{value}"')
    return "".join(f" {each}" for each in made)


def titled(text: str) -> str:
    """Return the id of a mark over which ``text`` is shown, whatever is in it."""
    return f"title-{text.encode('utf-8', 'replace').hex()}"


def _title(mark: re.Match[str]) -> str:
    return f"<g><title>{escape(bytes.fromhex(mark[1]).decode())}</title>"


def mark(
    axes: Axes,
    at: float,
    value: float | None,
    interval: tuple[float, float] | None,
    title: str,
    *,
    colour: str = ESTIMATE,
    across: bool = False,
    hollow: bool = False,
) -> None:
    """Draw an estimate and its interval, as far as there are any, upright or ``across``.

    ``hollow``: as a circle and a dashed line, for a window that is still open.
    """

    def plot(values: Sequence[float], **style: Any) -> None:
        places = [at] * len(values)
        x, y = (values, places) if across else (places, values)
        axes.plot(x, y, gid=titled(title), color=colour, **style)

    if interval is not None:
        plot(interval, linewidth=2.4, linestyle=":" if hollow else "-")
    if value is not None:
        inside, edge, width = (CARD, colour, 1.6) if hollow else (colour, CARD, 0.8)
        plot(
            [value],
            marker="o",
            markersize=6.5,
            markerfacecolor=inside,
            markeredgecolor=edge,
            markeredgewidth=width,
        )


def scale(axes: Axes, which: str, write: Callable[[float], str], label: str) -> None:
    """Write the numbers of one axis, and below or above it what they count."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: write(value))
    if which == "x":
        axes.set_xlabel(label)
    else:
        axes.set_title(label, loc="left", color=SOFT, fontsize=11)


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Name lines, the first at the top; a long name is cut in its middle, and is the whole title.

    Names of segments differ at their ends as often as at their beginnings.
    """
    half = _NAME // 2
    shown = [n if len(n) <= _NAME else f"{n[:half]}…{n[half + 1 - _NAME :]}" for n in names]
    axes.set_yticks(range(len(shown)), shown, color=INK)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if len(name) > _NAME:
            label.set_gid(titled(name))
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def places(starts: Sequence[datetime]) -> list[float]:
    """Return where on a scale of days times are."""
    return [start.timestamp() / _DAY for start in starts]


def days(axes: Axes, starts: Sequence[datetime], ticks: int, label: str) -> None:
    """Name some of the days on which windows begin."""
    step = max(1, math.ceil(len(starts) / ticks))
    axes.set_xticks(places(starts)[::step], [day(start) for start in starts[::step]])
    axes.set_xlabel(label)


def intervals(
    title: str,
    names: Sequence[str],
    values: Sequence[tuple[float | None, tuple[float, float] | None, str]],
    unit: str,
    label: str,
    *,
    floor: float | None = None,
) -> Markup:
    """Return estimates with their intervals, one a line.

    Parameters
    ----------
    title : str
    names : sequence of str
    values : sequence of tuple
        Estimate, interval and what is said of both, by name.
    unit : str
        ``share``, or that of the values.
    label : str
        What the horizontal axis counts.
    floor : float, optional
        Where a dashed line is drawn.
    """

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=SOFT, linewidth=0.8)
        if floor is not None:
            axes.axvline(floor, color=EVERY, linewidth=1.4, linestyle="--")
        for line, (value, interval, text) in enumerate(values):
            mark(axes, line, value, interval, text, across=True)
        rows(axes, names)
        scale(axes, "x", writer_of(unit), label)
        axes.locator_params("x", nbins=6)

    longest = min(max((len(name) for name in names), default=0), _NAME)
    return chart(title, draw, height=20 * len(names) + 70, left=22 + _LETTER * longest)


def series(
    title: str,
    starts: Sequence[datetime],
    lines: Sequence[
        tuple[str, Sequence[tuple[float | None, tuple[float, float] | None, str]], str]
    ],
    label: str,
    smoothed: Sequence[Sequence[float]] = (),
    hollow: Sequence[bool] = (),
) -> Markup:
    """Return figures over windows: one panel a figure, each with a scale of its own.

    Parameters
    ----------
    title : str
    starts : sequence of datetime
        When each window begins.
    lines : sequence of tuple
        The name of a figure, its estimate, interval and text in each window, and its unit.
    label : str
        Below the horizontal axis.
    smoothed : sequence of sequence of float
        Of each figure a smoothed series, empty for none; of no figure if left out.
    hollow : sequence of bool
        Which windows are still open, and drawn hollow; none if left out.
    """
    is_open = hollow or [False] * len(starts)

    def draw(*parts: Axes) -> None:
        for at_line, (axes, (name, values, unit)) in enumerate(zip(parts, lines, strict=True)):
            if smoothed and smoothed[at_line]:
                axes.plot(places(starts), smoothed[at_line], color=EVERY, linewidth=1.8)
            else:
                shown = [one[0] if one[0] is not None else math.nan for one in values]
                axes.plot(places(starts), shown, color=WASH, linewidth=1.4)
            shown_at = zip(places(starts), values, is_open, strict=True)
            for at, (value, interval, text), empty in shown_at:
                mark(axes, at, value, interval, text, hollow=empty)
            scale(axes, "y", writer_of(unit), name)
            axes.locator_params("y", nbins=4)
        days(parts[-1], starts, 4, label)

    height = _ABOVE + _BELOW + 120 * len(lines)
    return chart(title, draw, height=height, parts=[1] * len(lines), left=_NUMBERS)


def distribution(
    title: str,
    points: Sequence[float],
    values: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    unit: str,
) -> Markup:
    """Return a distribution function with its band.

    ``points``: in the metric's unit, ascending; ``values``: the share at or below each;
    ``bounds``: of the band there, none if it has none.
    """

    def draw(axes: Axes) -> None:
        if bounds:
            low, high = zip(*bounds, strict=True)
            axes.fill_between(points, low, high, color=WASH, linewidth=0)
        axes.plot(points, values, color=ESTIMATE, linewidth=2)
        axes.set_ylim(0, 1)
        scale(axes, "x", number, unit or "value")
        scale(axes, "y", writer_of("share"), "share at or below")
        axes.locator_params("x", nbins=7)

    return chart(title, draw, height=290, left=_NUMBERS)


def levels(
    title: str,
    starts: Sequence[datetime],
    counts: Sequence[Sequence[int]],
    label: str,
    hollow: Sequence[bool],
) -> Markup:
    """Return reports by level, window by window: ``counts`` are of windows, then of levels.

    ``hollow``: which windows are still open.
    """
    by_level = np.array(counts, dtype=np.int64).T
    at_days = places(starts)
    width = 0.8 * min(np.diff(at_days), default=1.0)

    def draw(axes: Axes) -> None:
        bottom = np.zeros(len(starts))
        colours = level_colours(len(by_level))
        for at, (numbers, colour) in enumerate(zip(by_level, colours, strict=True), 1):
            bars = axes.bar(at_days, numbers, width, bottom, color=colour)
            for bar, count, start, empty in zip(
                bars, numbers.tolist(), starts, hollow, strict=True
            ):
                if empty:
                    bar.set(facecolor="none", edgecolor=colour, linewidth=1.6)
                bar.set_gid(titled(f"from {day(start)}: {count:,} reports at level {at}"))
            bottom += numbers
        scale(axes, "y", number, "reports by level")
        axes.locator_params("y", nbins=5)
        days(axes, starts, 4, label)

    return chart(title, draw, height=230, left=_NUMBERS)
