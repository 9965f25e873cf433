"""A line chart in SVG, both axes logarithmic, that stands alone and is readable light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

Format = Callable[[float], str]

_STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.title { font-size: 14px; }
.axis, .grid { stroke-width: 1; }
.curve { fill: none; stroke-width: 2.2; }
.asked { stroke-width: 1.4; stroke-dasharray: 5 4; }
.mark { stroke-width: 1; }
"""


@dataclass(frozen=True)
class Palette:
    """The colours of a scheme; curves are mixed of the weakest one's and the strongest one's."""

    paper: str
    ink: str
    soft: str
    faint: str
    asked: str
    weak: tuple[int, int, int]
    strong: tuple[int, int, int]

    def rules(self, shades: Sequence[float]) -> str:
        """Return the stylesheet, with a class for each curve."""
        curves = "".join(
            f".curve{number} {{ stroke: {_mixed(self.weak, self.strong, shade)}; }} "
            for number, shade in enumerate(shades)
        )
        return (
            f"text {{ fill: {self.soft}; }} .title, .name {{ fill: {self.ink}; }} "
            f".asked-name, .mark {{ fill: {self.asked}; }} .asked {{ stroke: {self.asked}; }} "
            f".paper {{ fill: {self.paper}; }} .mark {{ stroke: {self.paper}; }} "
            f".axis {{ stroke: {self.soft}; }} .grid {{ stroke: {self.faint}; }} {curves}"
        )


_LIGHT = Palette(
    "#ffffff", "#1d2329", "#5b6670", "#e4e2dc", "#c2352b", (141, 186, 224), (23, 87, 143)
)
_DARK = Palette(
    "#1b2026", "#e6e9ec", "#9aa6b1", "#2c333b", "#ff7a6b", (68, 116, 160), (165, 211, 251)
)


@dataclass(frozen=True)
class LogScale:
    """A logarithmic map of ``[low, high]``, both above 0, to pixels ``[start, end]``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        place = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + place * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round numbers inside the range: powers of ten, and between few of them 2 and 5.

        Examples
        --------
        >>> LogScale(1, 30, 0, 100).ticks()
        [1.0, 2.0, 5.0, 10.0, 20.0]
        """
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        inside = [
            float(f"{m}e{power}")
            for power in range(first, last + 1)
            for m in ((1, 2, 5) if math.log10(self.high / self.low) <= 3 else (1,))
        ]
        return [tick for tick in inside if self.low * 0.999 <= tick <= self.high * 1.001]


@dataclass
class LogChart:
    """A chart of ``width`` x ``height`` pixels whose curves are named at their right end."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    width: float = 760
    height: float = 460
    left: float = 70
    right: float = 120
    top: float = 62
    bottom: float = 52
    marks: list[str] = field(default_factory=list)
    shades: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.x = LogScale(*self.x_range, self.left, self.width - self.right)
        self.y = LogScale(*self.y_range, self.height - self.bottom, self.top)

    def axes(self, x_label: str, y_label: str, x_form: Format, y_form: Format) -> None:
        """Draw the grid, the ticks with their numbers, and what the axes count."""
        base, end = self.height - self.bottom, self.width - self.right
        for tick in self.x.ticks():
            at = self.x(tick)
            self._line(at, self.top, at, base, "grid")
            self.text(at, base + 18, x_form(tick), anchor="middle")
        for tick in self.y.ticks():
            at = self.y(tick)
            self._line(self.left, at, end, at, "grid")
            self.text(self.left - 8, at + 4, y_form(tick), anchor="end")
        self._line(self.left, base, end, base, "axis")
        self.text((self.left + end) / 2, self.height - 10, x_label, anchor="middle")
        self.text(self.left - 60, self.top - 12, y_label)

    def curve(self, points: Sequence[tuple[float, float]], name: str, shade: float) -> None:
        """Draw a line through data points, from weak (shade 0) to strong (shade 1)."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        style = f"curve{len(self.shades)}"
        self.shades.append(shade)
        self.marks.append(
            f'<polyline points="{path}" class="curve {style}"><title>{escape(name)}</title>'
            "</polyline>"
        )
        last = points[-1]
        self.text(self.x(last[0]) + 8, self.y(last[1]) + 4, name, "name")

    def target(self, y: float, name: str) -> None:
        """Draw a horizontal line at what was asked for."""
        at = self.y(y)
        self._line(self.left, at, self.width - self.right, at, "asked")
        self.text(self.left + 6, at - 6, name, "asked-name")

    def users(self, x: float, name: str) -> None:
        """Draw a vertical line at the users that there are."""
        at = self.x(x)
        self._line(at, self.top, at, self.height - self.bottom, "asked")
        near_end = at > (self.left + self.width - self.right) / 2
        shift, anchor = (-6, "end") if near_end else (6, "start")
        self.text(at + shift, self.top + 12, name, "asked-name", anchor)

    def dot(self, x: float, y: float, name: str) -> None:
        """Draw a dot where a curve reaches what was asked for, named for the pointer."""
        self.marks.append(
            f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4" class="mark">'
            f"<title>{escape(name)}</title></circle>"
        )

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Write at a pixel position."""
        self.marks.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def svg(self, title: str, description: str) -> str:
        """Return the file; ``description`` is for those who cannot see it."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" '
            f'aria-label="{escape(description, quote=True)}">'
            f"<style>{_STYLE}{_LIGHT.rules(self.shades)}"
            f"@media (prefers-color-scheme: dark) {{ {_DARK.rules(self.shades)}}}</style>"
            f'<rect width="100%" height="100%" class="paper"/>'
            f'<text x="10" y="22" class="title">{escape(title)}</text>'
            f"{''.join(self.marks)}</svg>\n"
        )

    def _line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.marks.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'
        )


def _mixed(weak: tuple[int, int, int], strong: tuple[int, int, int], shade: float) -> str:
    mixed = (round(a + shade * (b - a)) for a, b in zip(weak, strong, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
