"""Charts: matplotlib draws them, inside of pages as SVG that the stylesheet colours.

A dot is an estimate and the line or band around it its interval of 95 %. No chart in a page has a
style attribute or element, so that pages can forbid these; a mark says its numbers in its title.
The same chart is a file as SVG, PNG or CSV.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.colors import get_named_colors_mapping
from matplotlib.figure import Figure
from matplotlib.markers import TICKDOWN
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox, BboxTransform, Transform

from mechanisms.arrays import Floats
from mechanisms.estimators.local_level import Smoothed
from pipelines.web.formats import day, number, writer_of
from sotto.csv_cells import write_csv_rows

_DAY = 86_400
#: Widths in the units of the SVG, which are pixels where there is room.
NARROW, WIDE = 440, 1000

# Colours have the names of the stylesheet's variables; pages and files replace them differently.
_NAMES = "ink soft faint card estimate wash truth every bad level0 level1 level2 level3 level4"
_COLOURS = {f"sotto {name}": name for name in _NAMES.split()}
INK, SOFT, FAINT, CARD, ESTIMATE, WASH, TRUTH, EVERY, BAD, *_LEVELS = _COLOURS
#: Colours to draw with for a page, each of which is then replaced by the stylesheet's variable.
_STAND_INS = {name: f"#0000{at:02x}" for at, name in enumerate(_COLOURS.values(), 1)}
#: Files that a chart can be, by the end of their names.
FORMS = {"svg": "image/svg+xml", "png": "image/png", "csv": "text/csv"}
#: Pixels of a PNG per inch; a page has 72.
_SHARP = 144

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
    # Names may have dollar signs, which would begin a formula.
    "text.parse_math": False,
}
#: Held until a figure is written: matplotlib's style is global, and is read until then.
_DRAWING = threading.Lock()
#: The head of a file, with the style that charts in a page have from its stylesheet.
_ROOT = '<svg font-family="DejaVu Sans, sans-serif" stroke-linejoin="round"'
#: Characters that names may contain and XML may not.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ALLOWED = re.compile(r"(fill|stroke|opacity|clip|text-anchor|font-size|font-weight)[a-z-]*")
#: The most characters of a name that a chart shows.
_NAME = 28
#: Room around the axes, in pixels; at the left the least for numbers, and that of one letter.
_ABOVE, _BELOW, _RIGHT, _NUMBERS, _LETTER = 26, 44, 32, 56, 6.6
#: Distances between panels, in their widths and heights, and the numbers on their vertical scale.
_ACROSS, _UP, _TICKS = 1.08, 1.34, MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
#: The most windows whose estimates are dots; more windows are a line and a band.
DOTS = 70


def level_colours(levels: int) -> list[str]:
    """Return a colour for each level, the last one the strongest."""
    last = len(_LEVELS) - 1
    if levels == 1:
        return [_LEVELS[last]]
    return [_LEVELS[round(level * last / (levels - 1))] for level in range(levels)]


def level_names(levels: int) -> list[str]:
    """Return the stylesheet's names of these colours."""
    return [_COLOURS[colour] for colour in level_colours(levels)]


@dataclass(eq=False, kw_only=True)
class Chart:
    """A chart, drawn when it is shown.

    Parameters
    ----------
    title : str
        The accessible name: what the chart shows.
    draw : callable
        Draws; called with all axes, the top ones first.
    table : callable
        Returns the rows of its CSV file.
    width, height : float
        In pixels.
    parts : sequence of float
        Heights of rows of axes with one horizontal scale, relative to each other.
    """

    title: str
    draw: Callable[..., None]
    table: Callable[[], Sequence[Mapping[str, object]]] = tuple
    width: float = NARROW
    height: float = 270
    parts: Sequence[float] = (1,)
    #: Whether it has so many windows that a page does not wait for it.
    many: bool = False
    #: Its name in the addresses of its files.
    name: str = ""
    #: The address of its SVG, if the browser fetches that once the chart is seen; empty if the page
    #: has the chart itself.
    later: str = ""

    def __html__(self) -> str:
        if not self.later:
            return self.inline
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        source = f'src="{escape(self.later)}" alt="{escape(self.title)}"'
        return Markup(f'<img loading="lazy" {size} {source}>')

    @cached_property
    def inline(self) -> Markup:
        """The chart inside of a page."""
        svg = _inside(self._written("svg", _STAND_INS))
        for name, colour in _STAND_INS.items():
            svg = svg.replace(colour, f"var(--{name})")
        return Markup(
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img">'
            f"<title>{escape(self.title)}</title>{svg}"
        )

    def file(self, form: str) -> bytes:
        """Return the chart as a file of one of :data:`FORMS`, in the colours of a light page."""
        if form == "csv":
            text = io.StringIO(newline="")
            table = self.table()
            write_csv_rows(text, list(table[0]) if table else [], table)
            return text.getvalue().encode()
        written = self._written(form, _light())
        if form == "png":
            return written
        return _plain(written.decode()).replace("<svg", _ROOT, 1).encode()

    def _written(self, form: str, colours: Mapping[str, str]) -> bytes:
        with _DRAWING, warnings.catch_warnings():
            # The font that measures text lacks characters that the page's font has.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            for known, name in _COLOURS.items():
                get_named_colors_mapping()[known] = colours[name]
            with mpl.rc_context(_STYLE):
                file = io.BytesIO()
                in_page = colours is _STAND_INS
                self._figure().savefig(
                    file,
                    format=form,
                    dpi=_SHARP if form == "png" else "figure",
                    transparent=in_page,
                    facecolor="none" if in_page else CARD,
                    metadata=None if in_page else {"Title": self.title},
                )
        return file.getvalue()

    def _figure(self) -> Figure:
        width, height = self.width, self.height
        figure = Figure((width / 72, height / 72))
        figure.subplots_adjust(bottom=_BELOW / height, top=1 - _ABOVE / height, hspace=0.34)
        rows, heights = len(self.parts), self.parts
        grid = figure.subplots(rows, sharex=True, squeeze=False, height_ratios=heights)
        self.draw(*grid.flat)
        named = [len(each.get_text()) for axes in grid.flat for each in axes.get_yticklabels()]
        # Letters are counted, since measuring all text would take half as long as drawing.
        room = max(_NUMBERS, 22 + _LETTER * max(named, default=0))
        right = room if grid[0, 0].yaxis.get_tick_params().get("labelright") else _RIGHT
        # Even a number of a hundred digits must leave room for the axes.
        figure.subplots_adjust(left=min(room / width, 0.45), right=max(1 - right / width, 0.55))
        return figure


def warm_up() -> None:
    """Load fonts and other things that the first chart of a process would wait for."""
    _ = Chart(title="", draw=lambda axes: scale(axes, "x", number, ""), height=100).inline


@cache
def _light() -> Mapping[str, str]:
    """Return the colours of a light page by the names of the stylesheet's variables."""
    style = (Path(__file__).parent / "static" / "style.css").read_text("utf-8")
    return dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]+);", style[: style.index("}")]))


def _inside(written: bytes) -> str:
    """Return the content of matplotlib's SVG element, without styles, and with titles of marks."""
    svg = _plain(written.decode())
    svg = svg[svg.index(">", svg.index("<svg")) + 1 :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    return re.sub(r'<g id="[\w.]+_\d+">', "<g>", svg)


def _plain(svg: str) -> str:
    """Return an SVG in which the ids of :func:`titled` are replaced by titles.

    It has no style either: the content security policy forbids styles, also in a file that is
    opened in a browser.
    """
    svg = re.sub(r'<g id="title-([0-9a-f]*)">', lambda mark: f"<g>{_shown_over(mark[1])}", svg)
    svg = re.sub(r'<g id="titles-([0-9a-f-]*)">(.*?</g>\s*</g>)', _titles, svg, flags=re.DOTALL)
    svg = re.sub("<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' style="([^"]*)"(?=[^<>]*>)', _attributes, svg)
    return _NOT_XML.sub("\ufffd", svg)


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


def titled_each(texts: Sequence[str]) -> str:
    """Return the id of a row of dots, each of which shows its own text."""
    return "titles-" + "-".join(text.encode("utf-8", "replace").hex() for text in texts)


def _titles(dots: re.Match[str]) -> str:
    texts = iter(dots[1].split("-"))
    return "<g>" + re.sub(
        r"<use ([^>]*?)/>", lambda dot: f"<use {dot[1]}>{_shown_over(next(texts))}</use>", dots[2]
    )


def _shown_over(text: str) -> str:
    return f"<title>{escape(bytes.fromhex(text).decode())}</title>"


def scale(axes: Axes, which: str, write: Callable[[float], str], label: str) -> None:
    """Write the numbers of one axis, and below or above it ``label``, what they count."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(lambda value, _: write(value))
    if which == "x":
        axes.set_xlabel(label)
    else:
        # With ``y`` given matplotlib need not look for a height, which takes a quarter of the time.
        axes.set_title(label, loc="left", y=1.0, color=SOFT, fontsize=11)


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a chart, the first at the top; the title of a cut name has all of it."""
    axes.set_yticks(range(len(names)), map(_cut, names), color=INK)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if len(name) > _NAME:
            label.set_gid(titled(name))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")


def _cut(name: str) -> str:
    """Cut a long name in its middle: segments differ at their ends as often as at the beginning."""
    half = _NAME // 2
    return name if len(name) <= _NAME else f"{name[:half]}…{name[half + 1 - _NAME :]}"


def places(starts: Sequence[datetime]) -> list[float]:
    """Return times as numbers on a scale of days."""
    return [start.timestamp() / _DAY for start in starts]


def gaps(starts: Sequence[datetime], ends: Sequence[datetime]) -> list[int]:
    """Return which windows begin later than the window before ends: lines are broken there.

    >>> days = [datetime(2025, 1, day) for day in (1, 8, 15, 22)]
    >>> gaps(days[:3], days[1:]), gaps([days[0], days[2]], [days[1], days[3]])
    ([], [1])
    """
    following = zip(ends, starts[1:], strict=False)
    return [at for at, (end, start) in enumerate(following, 1) if start > end]


def intervals(
    title: str,
    names: Sequence[str],
    values: Sequence[tuple[float | None, tuple[float, float] | None, str]],
    unit: str,
    label: str,
    *,
    floor: float | None = None,
) -> Chart:
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
        known = [(at, ends) for at, (_, ends, _) in enumerate(values) if ends is not None]
        if known:
            at, ends = zip(*known, strict=True)
            axes.hlines(at, *zip(*ends, strict=True), color=ESTIMATE, linewidth=2.4)
        shown = [at for at, each in enumerate(values) if each[0] is not None]
        _dots(axes, [values[at][0] for at in shown], shown, [values[at][2] for at in shown])
        rows(axes, names)
        scale(axes, "x", writer_of(unit), label)
        axes.locator_params("x", nbins=6)

    return Chart(
        title=title,
        draw=draw,
        table=lambda: [
            {"name": name, **_cells(value, ends)}
            for name, (value, ends, _) in zip(names, values, strict=True)
        ],
        height=20 * len(names) + 70,
    )


#: An estimate, the ends of its interval, and what is said of both.
Value = tuple[float | None, tuple[float, float] | None, str]


def _cells(value: float | None, ends: tuple[float, float] | None) -> dict[str, object]:
    low, high = ends or (None, None)
    return {"value": value, "low": low, "high": high}


class Line(NamedTuple):
    """A figure over windows: when each begins, its value, and whether the window is still open.

    ``smoothed``: a line that is drawn in place of the values' own. ``beside``: whether the line is
    only there to compare another one with. ``under``: for each value the ends of a wider band,
    drawn behind. ``ends``: when each window ends; a line is broken where the next one begins later.
    """

    name: str
    starts: Sequence[datetime]
    values: Sequence[Value]
    open: Sequence[bool]
    smoothed: Smoothed | None = None
    beside: bool = False
    under: Sequence[tuple[float, float] | None] = ()
    ends: Sequence[datetime] = ()


class SeriesPanel(NamedTuple):
    """Lines on one scale, and above them a name."""

    name: str
    unit: str
    lines: Sequence[Line]


class Mark(NamedTuple):
    """A note at a time, and its number in the list of notes."""

    at: datetime
    number: int
    text: str


def series(
    title: str,
    panels: Sequence[SeriesPanel],
    label: str,
    marks: Sequence[Mark] = (),
    *,
    columns: int = 1,
    one_scale: bool = False,
) -> Chart:
    """Return figures over windows, a panel a figure, as wide as the page.

    Parameters
    ----------
    title : str
    panels : sequence of SeriesPanel
    label : str
        Below the horizontal axis.
    marks : sequence of Mark
        Upright lines in all panels, with their numbers.
    columns : int
        Panels in a row.
    one_scale : bool
        Whether all panels have one vertical scale.
    """
    starts = sorted({start for panel in panels for line in panel.lines for start in line.starts})
    rows_needed = math.ceil(len(panels) / columns)
    named = starts[:: max(1, math.ceil(len(starts) / max(2, 8 // columns)))]

    def draw(axes: Axes) -> None:
        # All panels are in one pair of axes: making a pair takes longer than drawing a panel.
        numbers = [np.concatenate([*map(_numbers, panel.lines)]) for panel in panels]
        if one_scale:
            numbers = [np.concatenate(numbers)] * len(panels)
        begin, end = _limits(np.array(places(starts)))
        across = [(place - begin) / (end - begin) for place in places(named)]
        written: dict[float, str] = {}
        feet: list[tuple[float, float]] = []
        for at, (panel, (low, high)) in enumerate(zip(panels, map(_limits, numbers), strict=True)):
            left, below = at % columns * _ACROSS, (rows_needed - 1 - at // columns) * _UP
            box = Bbox.from_extents(begin, low, end, high)
            to = BboxTransform(box, Bbox.from_bounds(left, below, 1, 1)) + axes.transData
            ticks = [tick for tick in _TICKS.tick_values(low, high) if low <= tick <= high]
            if left == 0:
                write = writer_of(panel.unit)
                written |= {below + (tick - low) / (high - low): write(tick) for tick in ticks}
            style: Any = {"linewidth": 0.8, "clip_on": False, "zorder": 1, "transform": to}
            axes.hlines([*ticks, low], begin, end, [*[FAINT] * len(ticks), SOFT], **style)
            feet += [(left + each, below) for each in across]
            for each in panel.lines:
                _line(axes, each, to)
            for note in marks:
                _mark_time(axes, note, (low, high), to)
            models = [f"line: {each.smoothed.model}" for each in panel.lines if each.smoothed]
            name = "; ".join([panel.name, *models])
            style = {"xycoords": to, "textcoords": "offset points", "annotation_clip": False}
            axes.annotate(name, (begin, high), (0, 6), **style)
            if columns == 1:
                axes.annotate(_cut(panel.name), (end, high), (0, 6), ha="right", **style)
        style = {"color": SOFT, "linestyle": "", "marker": TICKDOWN, "clip_on": False}
        axes.plot(*zip(*feet, strict=True), ms=3.5, mew=0.8, **style)
        days_at = [at * _ACROSS + each for at in range(columns) for each in across]
        axes.set_xticks(days_at, [day(start) for start in named] * columns)
        axes.set_yticks([*written], [*written.values()])
        axes.set_xlabel(label)
        axes.set(xlim=(0, (columns - 1) * _ACROSS + 1), ylim=(0, (rows_needed - 1) * _UP + 1))
        axes.spines["bottom"].set_visible(False)
        # A narrow screen shows one end, and either end needs names and scales.
        axes.tick_params(bottom=False, labelright=True)
        axes.grid(visible=False)

    return Chart(
        title=title,
        draw=draw,
        table=lambda: [
            {
                "figure": panel.name,
                "of": line.name,
                "window_start": start.isoformat(),
                **_cells(*value[:2]),
            }
            for panel in panels
            for line in panel.lines
            for start, value in zip(line.starts, line.values, strict=True)
        ],
        width=WIDE,
        height=_ABOVE + _BELOW + (230 if len(panels) == 1 else 150) * rows_needed,
    )


def _numbers(line: Line) -> Floats:
    """Return all numbers that a line shows; a smoothed line lies between them."""
    values = np.array([each[0] for each in line.values], dtype=float)
    return np.append(_ends([*(each[1] for each in line.values), *line.under]), values)


def _limits(numbers: Floats) -> tuple[float, float]:
    """Return the ends of an axis that shows these numbers."""
    known = numbers[np.isfinite(numbers)]
    low, high = _TICKS.nonsingular(known.min(), known.max()) if known.size else (0.0, 1.0)
    return low - (high - low) / 20, high + (high - low) / 20


def _line(axes: Axes, line: Line, to: Transform) -> None:
    """Draw a line with its band, and a dot for each window if there are few.

    A window without neighbours, which no line or band reaches, always has a point.
    """
    colour, band = (SOFT, FAINT) if line.beside else (ESTIMATE, WASH)
    at = np.array(places(line.starts))
    values = np.array([each[0] for each in line.values], dtype=float)
    ends = _ends([each[1] for each in line.values])
    breaks = gaps(line.starts, line.ends)

    def broken(figures: Floats) -> Floats:
        return np.insert(figures, breaks, math.nan, axis=0)

    across, known = broken(at), np.pad(np.isfinite(broken(values)), 1)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]
    for given, tint in ((_ends(line.under), FAINT), (ends, band)):
        if len(given):
            axes.fill_between(across, *broken(given).T, color=tint, linewidth=0, transform=to)
            if alone.any():
                ends_alone = broken(given)[alone].T
                axes.vlines(across[alone], *ends_alone, color=tint, linewidth=2, transform=to)
    drawn = values
    style: dict[str, Any] = {"color": colour, "linewidth": 1.4, "alpha": 0.7}
    if line.smoothed is not None:
        drawn, style = line.smoothed.values, {"color": EVERY, "linewidth": 1.8}
    style["transform"] = to
    axes.plot(across, broken(drawn), **style)
    if alone.any():
        axes.plot(across[alone], broken(drawn)[alone], ".", **style)
    if len(at) > DOTS or line.beside:
        return
    if line.smoothed is None:
        axes.vlines(at, ends[:, 0], ends[:, 1], color=band, linewidth=2, transform=to)
    is_open = np.array(line.open)
    for chosen, inside in ((~is_open, colour), (is_open, CARD)):
        shown = np.flatnonzero(chosen & np.isfinite(values)).tolist()
        texts = [line.values[each][2] for each in shown]
        _dots(axes, at[shown], values[shown], texts, markerfacecolor=inside, transform=to)


def _ends(known: Sequence[tuple[float, float] | None]) -> Floats:
    return np.array([each or (math.nan, math.nan) for each in known], dtype=float).reshape(-1, 2)


def _dots(axes: Axes, x: Any, y: Any, texts: Sequence[str], **style: Any) -> None:
    """Draw estimates as dots with a text for each, all as one artist, since that is faster."""
    if texts:
        style = {"markerfacecolor": ESTIMATE, "markeredgecolor": ESTIMATE} | style
        axes.plot(x, y, "o", ms=5.5, mew=1.2, gid=titled_each(texts), **style)


def _mark_time(axes: Axes, mark: Mark, ends: tuple[float, float], to: Transform) -> None:
    (at,) = places([mark.at])
    style: Any = {"color": EVERY, "linewidth": 1.2, "linestyle": "--"}
    axes.plot([at, at], ends, gid=titled(mark.text), transform=to, **style)
    style = {"verticalalignment": "top", "color": INK, "annotation_clip": False}
    axes.annotate(str(mark.number), (at, ends[1]), (3, 0), to, "offset points", **style)


def distribution(
    title: str,
    points: Sequence[float],
    values: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    unit: str,
) -> Chart:
    """Return a chart of a distribution function with its band.

    ``points``: in the metric's unit, ascending. ``values``: the share at or below each point.
    ``bounds``: the ends of the band at each point; empty if there is no band.
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

    ends: Sequence[tuple[float, float] | None] = bounds or [None] * len(points)
    return Chart(
        title=title,
        draw=draw,
        table=lambda: [
            {"at": point, **_cells(value, each)}
            for point, value, each in zip(points, values, ends, strict=True)
        ],
        height=290,
    )


def levels(
    title: str, starts: Sequence[datetime], counts: Sequence[Sequence[int]], label: str
) -> Chart:
    """Return a chart of reports by level; ``counts[window][level]`` are numbers of reports."""
    by_level = np.array(counts, dtype=np.int64).T
    at_days = places(starts)
    ends = [*at_days, at_days[-1] + min(np.diff(at_days), default=1.0)]

    def draw(axes: Axes) -> None:
        stacked = zip(by_level.cumsum(axis=0), by_level, level_colours(len(by_level)), strict=True)
        for at, (top, numbers, colour) in enumerate(stacked, 1):
            text = titled(f"reports at level {at}")
            axes.stairs(top, ends, baseline=top - numbers, fill=True, color=colour, gid=text)
        axes.set_ylim(0)
        scale(axes, "y", number, "reports by level")
        axes.locator_params("y", nbins=5)
        step = math.ceil(len(starts) / 4)
        axes.set_xticks(at_days[::step], [day(start) for start in starts[::step]])
        axes.set_xlabel(label)

    return Chart(
        title=title,
        draw=draw,
        table=lambda: [
            {"window_start": start.isoformat(), "level": level, "reports": reports}
            for start, numbers in zip(starts, counts, strict=True)
            for level, reports in enumerate(numbers, 1)
        ],
        height=230,
    )
