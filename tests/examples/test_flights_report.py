"""The report: one file that fetches nothing, whatever the findings."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest
from html_pages import Html
from invented import findings

from examples.flights import story
from examples.flights.faults import GARBAGE
from examples.flights.findings import Quarantined
from examples.flights.report import STYLES, write_report
from sotto.wire.reasons import Reason

#: Attributes of marks, in which a number could go wrong.
PLACES = {"x", "y", "d", "transform", "width", "height", "points"}


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with a name that looks like HTML."""
    found = findings()
    carriers = [dataclasses.replace(found.carriers[0], label='<b>&amp "q"'), *found.carriers[1:]]
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(dataclasses.replace(found, carriers=carriers), path, "results.html")
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def page(content: str) -> Html:
    return Html(content)


def test_tags_balance_whatever_names_contain(page: Html, content: str) -> None:
    assert '<b>&amp "q": ' in page.text
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
    assert len(titles) == content.count('role="img"') == 6
    assert "reports at level 3" in page.text


def test_every_colour_is_the_stylesheet_s(page: Html) -> None:
    style = "".join(each.read_text("utf-8") for each in STYLES)
    assert not page.values("style")
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", " ".join(page.values("fill", "stroke"))))
    assert {"--estimate", "--truth", "--every", "--level0", "--level4"} <= used
    assert all(f"{name}: #" in style for name in used)
    assert not re.search(r"#[0-9a-f]{6}", " ".join(page.values("fill", "stroke")))
    classes = {name for value in page.values("class") for name in value.split()}
    assert classes <= set(re.findall(r"\.([a-z][a-z0-9-]*)", style))


def test_no_number_went_wrong(page: Html) -> None:
    for text in (
        "336,776",
        "1.64 M",
        "53 of 53",
        "over_budget",
        "2,512 no device id",
        "1,643 of 1,724",
    ):
        assert text in page.text
    assert not re.search(r"\b(nan|inf|None)\b", page.text)
    assert not re.search(r"nan|inf", " ".join(page.values(*PLACES)))


def test_withheld_windows_are_named_with_their_reason(content: str) -> None:
    assert "<li>delayed, from 6 December: 7 reports, the plan asks for 20</li>" in content


def test_what_is_not_as_it_should_be_is_marked(content: str) -> None:
    assert content.count('<span class="bad">too few</span>') == 1
    assert content.count('<span class="bad">differs</span>') == 1


def test_every_reason_that_can_be_planted_is_explained(content: str) -> None:
    """An unknown reason, or fault, would stop the template."""
    reasons = {reason for reason, _ in GARBAGE} | {Reason.REVOKED, Reason.CORRUPT_LOG}
    found = findings()
    quarantine = [Quarantined(reason.label, 1, 1) for reason in reasons]
    write_report(
        dataclasses.replace(found, quarantine=quarantine), Path(os.devnull), "results.html"
    )


def test_the_story_gives_its_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    story.found(findings())
    printed = capsys.readouterr().out
    assert re.search(r"destinations +1,300 of 1,458 +89.2 % +1,360 at least +TOO FEW", printed)
    assert "1,240 records or rows, 3 reasons: DIFFERS: late" in printed
    assert "equal in 53 of 53 weeks" in printed
    assert "agrees in 3500 of 3500 windows" in printed
