"""The report: one file that fetches nothing, whatever the findings."""

from __future__ import annotations

import dataclasses
import re

import pytest
from html_pages import Html
from invented import findings

from examples.flights.report import STYLES, write_report

#: Attributes of marks, in which a number could go wrong.
PLACES = {"x", "y", "d", "transform", "width", "height", "points"}


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a name that looks like HTML, and a window that is withheld."""
    found = findings()
    stop = dataclasses.replace(found.decoding.destinations[0], name='<b>&amp "quoted"')
    found = dataclasses.replace(
        found,
        decoding=dataclasses.replace(
            found.decoding, destinations=[stop, *found.decoding.destinations[1:]]
        ),
        withheld=[("delayed", 15680 * 86_400_000, "7 reports, the plan asks for 20")],
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(found, path, "results.html")
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def page(content: str) -> Html:
    return Html(content)


def test_tags_balance_whatever_names_contain(page: Html, content: str) -> None:
    assert '<b>&amp "quoted" A00' in page.text
    assert "<b>&amp" not in content


def test_nothing_is_fetched(page: Html, content: str) -> None:
    assert {tag for tag, _ in page.tags}.isdisjoint(
        {"script", "link", "img", "iframe", "object", "image"}
    )
    assert not page.values("src")
    links = set(page.values("href", "xlink:href")) - {"results.html"}
    assert all(link.startswith("#") for link in links)
    assert "://" not in content
    assert "@import" not in content
    assert set(re.findall(r"url\(.", content)) <= {"url(#"}


def test_every_chart_is_described_and_its_marks_say_their_numbers(page: Html, content: str) -> None:
    titles = re.findall(r'role="img"><title>([^<]+)</title>', content)
    assert len(titles) == content.count('role="img"') >= 17
    assert "A00: " in page.text
    assert "reports at level 3" in page.text


def test_every_colour_is_the_stylesheet_s(page: Html) -> None:
    style = "".join(each.read_text("utf-8") for each in STYLES)
    assert not page.values("style")
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", " ".join(page.values("fill", "stroke"))))
    assert {"--estimate", "--truth", "--every", "--bad", "--level0", "--wash"} <= used
    assert all(f"{name}: #" in style for name in used)
    assert not re.search(r"#[0-9a-f]{6}", " ".join(page.values("fill", "stroke")))
    classes = {name for value in page.values("class") for name in value.split()}
    assert classes <= set(re.findall(r"\.([a-z][a-z0-9-]*)", style))


def test_no_number_went_wrong(page: Html) -> None:
    for text in ("336,776", "1.64 M", "53 of 53", "over_budget", "2,512 no device id"):
        assert text in page.text
    assert not re.search(r"\b(nan|inf|None)\b", page.text)
    assert not re.search(r"nan|inf", " ".join(page.values(*PLACES)))


def test_withheld_windows_are_named_with_their_reason(content: str) -> None:
    assert "<li>delayed, from 6 December: 7 reports, the plan asks for 20</li>" in content
