"""The report: one file that fetches nothing, whatever the findings."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from invented import findings

from examples.flights.report import STYLE, write_report
from examples.flights.report.svg import Chart, Scale

VOID = {"meta", "line", "circle", "rect", "path", "polyline", "polygon"}


class Page(HTMLParser):
    """Checks that tags balance, and collects attributes, classes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.classes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        for name, value in attrs:
            if name == "class":
                self.classes.update((value or "").split())
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


@pytest.fixture
def page(tmp_path: Path) -> Page:
    path = tmp_path / "report.html"
    write_report(findings(), path)
    parsed = Page()
    parsed.feed(path.read_text("utf-8"))
    parsed.close()
    return parsed


def test_tags_balance(page: Page) -> None:
    assert page.open == []


def test_nothing_is_fetched(page: Page, tmp_path: Path) -> None:
    assert {tag for tag, _, _ in page.attributes}.isdisjoint(
        {"script", "link", "img", "iframe", "object", "image", "use"}
    )
    assert {name for _, name, _ in page.attributes}.isdisjoint({"src", "href", "xlink:href"})
    content = (tmp_path / "report.html").read_text("utf-8")
    assert "://" not in content
    assert "@import" not in content
    assert "url(" not in content


def test_every_figure_is_described(page: Page) -> None:
    figures = [name for tag, name, _ in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(figures) >= 17


def test_every_class_has_a_style(page: Page) -> None:
    styled = set(re.findall(r"\.([a-z][a-z0-9-]*)", STYLE.read_text("utf-8")))
    # Marks that look like their plain kind.
    assert page.classes - styled <= {"found"}


def test_headline_figures(page: Page) -> None:
    for text in ("336,776", "1.64 M", "53 of 53", "over_budget", "2,512 no device id"):
        assert text in page.text


def test_no_number_went_wrong(page: Page) -> None:
    assert not re.search(r"\b(nan|inf|None)\b", page.text)
    numbers = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "points", "d", "width", "height"}
    for _, name, value in page.attributes:
        assert name not in numbers or "nan" not in value


def test_the_report_says_which_windows_are_withheld_and_why(tmp_path: Path) -> None:
    why = "7 reports, the plan asks for 20"
    found = dataclasses.replace(findings(), withheld=[("delayed", 15680 * 86_400_000, why)])
    write_report(found, tmp_path / "r.html")
    assert f"<li>delayed, from 6 December: {why}</li>" in (tmp_path / "r.html").read_text("utf-8")


def test_text_from_findings_is_escaped(tmp_path: Path) -> None:
    found = findings()
    stop = dataclasses.replace(found.decoding.destinations[0], name="<b>&amp")
    decoding = dataclasses.replace(found.decoding, destinations=[stop])
    write_report(dataclasses.replace(found, decoding=decoding), tmp_path / "r.html")
    assert "<b>&amp" not in (tmp_path / "r.html").read_text("utf-8").replace("&lt;b&gt;", "")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-30, 180, [0, 50, 100, 150]),
        (0, 12_345, [0, 2500, 5000, 7500, 10_000]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert Scale(low, high, 0, 100).ticks() == pytest.approx(ticks)


def test_marks_lie_in_the_frame() -> None:
    chart = Chart((0, 10), (0, 1))
    assert (chart.x(0), chart.x(10)) == (chart.left, chart.width - chart.right)
    assert (chart.y(0), chart.y(1)) == (chart.height - chart.bottom, chart.top)
