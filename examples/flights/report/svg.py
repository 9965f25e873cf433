"""A small chart in SVG: scales, axes and marks. Colours are classes, so that one stylesheet
serves light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

Format = Callable[[float], str]


@dataclass(frozen=True)
class Scale:
    """A linear map of ``[low, high]`` to pixels ``[start, end]``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round numbers inside the range, about so many.

        Examples
        --------
        >>> Scale(0, 1, 0, 100).ticks(5)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        rough = span / about
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 10) for i in range(first, last + 1)]


def percent(value: float) -> str:
    """Return a share as a percentage of at most one decimal.

    Examples
    --------
    >>> percent(0.25), percent(0.005)
    ('25 %', '0.5 %')
    """
    return f"{100 * value:.3g} %".replace("-", "−")


def plain(value: float) -> str:
    """Return a number without superfluous digits, with thousands separated.

    Examples
    --------
    >>> plain(1500.0), plain(0.5), plain(-30.0)
    ('1,500', '0.5', '−30')
    """
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return text.replace("-", "−")


@dataclass
class Chart:
    """A chart of ``width`` x ``height`` pixels; ``x`` and ``y`` map data to its inner frame."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = 520
    height: float = 300
    left: float = 46
    right: float = 16
    top: float = 30
    bottom: float = 40
    marks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.x = Scale(*self.x_range, self.left, self.width - self.right)
        self.y = Scale(*self.y_range, self.height - self.bottom, self.top)

    def add(self, mark: str) -> None:
        """Add one SVG element."""
        self.marks.append(mark)

    def axis_x(
        self,
        form: Format = plain,
        label: str = "",
        about: int = 6,
        ticks: Sequence[float] | None = None,
        grid: bool = False,
    ) -> None:
        """Draw the horizontal axis: ticks, their labels and, below, what they count."""
        base = self.height - self.bottom
        self.add(_line(self.left, base, self.width - self.right, base, "axis"))
        for tick in self.x.ticks(about) if ticks is None else ticks:
            at = self.x(tick)
            if grid:
                self.add(_line(at, self.top, at, base, "grid"))
            self.add(_line(at, base, at, base + 4, "axis"))
            self.label(at, base + 16, form(tick), "tick", "middle")
        if label:
            middle = (self.left + self.width - self.right) / 2
            self.label(middle, self.height - 5, label, "axis-label", "middle")

    def axis_y(self, form: Format = plain, label: str = "", about: int = 5) -> None:
        """Draw horizontal grid lines with their labels and, above, what they count."""
        for tick in self.y.ticks(about):
            at = self.y(tick)
            self.add(_line(self.left, at, self.width - self.right, at, "grid"))
            self.label(self.left - 6, at + 4, form(tick), "tick", "end")
        if label:
            self.label(4, self.top - 14, label, "axis-label", "start")

    def label(self, x: float, y: float, text: str, style: str, anchor: str = "start") -> None:
        """Write ``text`` at a pixel position."""
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def line(self, points: Iterable[tuple[float, float]], style: str) -> None:
        """Draw a line through data points."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.add(f'<polyline points="{path}" class="{style}"/>')

    def steps(self, points: Sequence[tuple[float, float]], style: str) -> None:
        """Draw a line that stays at each value until the next point."""
        stairs = [points[0]]
        for (_, before), (x, y) in pairwise(points):
            stairs += [(x, before), (x, y)]
        self.line(stairs, style)

    def band(
        self, x: Sequence[float], low: Sequence[float], high: Sequence[float], style: str
    ) -> None:
        """Fill the area between two curves."""
        edge = list(zip(x, low, strict=True)) + list(zip(x, high, strict=True))[::-1]
        path = " ".join(f"{self.x(px):.1f},{self.y(py):.1f}" for px, py in edge)
        self.add(f'<polygon points="{path}" class="{style}"/>')

    def interval(
        self, x: float, low: float, high: float, style: str, title: str = "", offset: float = 0
    ) -> None:
        """Draw a vertical interval at ``x``, shifted by ``offset`` pixels."""
        at = self.x(x) + offset
        self.add(_line(at, self.y(low), at, self.y(high), style, title))

    def span(self, y: float, low: float, high: float, style: str, title: str = "") -> None:
        """Draw a horizontal interval at ``y``."""
        self.add(_line(self.x(low), self.y(y), self.x(high), self.y(y), style, title))

    def dot(
        self,
        x: float,
        y: float,
        style: str,
        radius: float = 3.5,
        title: str = "",
        offset: float = 0,
    ) -> None:
        """Draw a dot at a data point, shifted sideways by ``offset`` pixels."""
        self.add(
            f'<circle cx="{self.x(x) + offset:.1f}" cy="{self.y(y):.1f}" r="{radius:g}" '
            f'class="{style}">{_title(title)}</circle>'
        )

    def tick_mark(self, x: float, y: float, style: str, half: float = 7, title: str = "") -> None:
        """Draw a short vertical stroke at a data point."""
        at, level = self.x(x), self.y(y)
        self.add(_line(at, level - half, at, level + half, style, title))

    def dash_mark(self, x: float, y: float, style: str, half: float = 7, title: str = "") -> None:
        """Draw a short horizontal stroke at a data point."""
        at, level = self.x(x), self.y(y)
        self.add(_line(at - half, level, at + half, level, style, title))

    def bar(self, left: float, right: float, height: float, style: str, title: str = "") -> None:
        """Draw a bar from zero to ``height`` between two data positions, with a gap of a pixel."""
        x0, x1 = self.x(left) + 0.5, self.x(right) - 0.5
        y0, y1 = sorted((self.y(0), self.y(height)))
        self.add(
            f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{max(x1 - x0, 0.5):.1f}" '
            f'height="{max(y1 - y0, 0.5):.1f}" class="{style}">{_title(title)}</rect>'
        )

    def rule_y(self, y: float, style: str) -> None:
        """Draw a horizontal line across the frame."""
        self.add(_line(self.left, self.y(y), self.width - self.right, self.y(y), style))

    def rule_x(self, x: float, style: str) -> None:
        """Draw a vertical line across the frame."""
        self.add(_line(self.x(x), self.top, self.x(x), self.height - self.bottom, style))

    def svg(self, description: str) -> str:
        """Return the chart; ``description`` is for those who cannot see it."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(description, quote=True)}">{"".join(self.marks)}</svg>'
        )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _line(x1: float, y1: float, x2: float, y2: float, style: str, title: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}">'
        f"{_title(title)}</line>"
    )
