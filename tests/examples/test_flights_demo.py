"""The demo itself, with a few aircraft: what it finds is as it should be, and so is its report."""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from html_pages import Html
from statistical import check_at_least

from examples.flights import story
from examples.flights.demo import Demo, run
from examples.flights.faults import GARBAGE
from examples.flights.findings import Coverage, Findings, Quarantined
from examples.flights.report import STYLES, write_report
from sotto.errors import ParameterError
from sotto.wire.reasons import Reason

DAY = 86_400_000
#: Attributes of marks, in which a number could go wrong.
PLACES = {"x", "y", "d", "transform", "width", "height", "points"}


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ParameterError, match="not empty"):
        Demo(tmp_path).start_afresh()
    assert (tmp_path / "precious").exists()


def test_a_former_run_is_removed(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo")
    demo.start_afresh()
    (tmp_path / "demo" / "left").touch()
    demo.start_afresh()
    assert [path.name for path in (tmp_path / "demo").iterdir()] == [".sotto-demo"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flights")


@pytest.fixture(scope="module")
def findings(folder: Path) -> Findings:
    """The demo's findings with a small fleet."""
    # In the week that counts some 30 have their turn; fewer than two only once in 10**14 runs.
    return run(Demo(folder / "demo", processes=1, aircraft=120))


@pytest.fixture(scope="module")
def unlucky(findings: Findings) -> Findings:
    """Findings that are not as they should be, of an airline whose name looks like HTML."""
    named = replace(findings.carriers[0], label='<b>&amp "q"')
    return replace(
        findings,
        flights=336_776,
        reports=1_642_965,
        carriers=[named, *findings.carriers[1:]],
        # Those of a small fleet are drawn and depend on each other: now and then too few hold.
        coverage=[
            Coverage("destinations", 1300, 1458, 1360),
            *(replace(each, hits=each.total) for each in findings.coverage),
        ],
        quarantine=[*findings.quarantine, Quarantined(Reason.LATE.label, 24, 23)],
        withheld=[("delayed", 15680 * DAY, "7 reports, the plan asks for 20")],
    )


@pytest.fixture(scope="module")
def content(unlucky: Findings, folder: Path) -> str:
    write_report(unlucky, folder / "report.html", "results.html")
    return (folder / "report.html").read_text("utf-8")


@pytest.fixture(scope="module")
def page(content: str) -> Html:
    return Html(content)


@pytest.mark.real_randomness
@pytest.mark.slow
class TestASmallFleet:
    def test_all_is_as_it_should_be(self, findings: Findings, folder: Path) -> None:
        assert findings.devices == 120
        assert findings.reports == 3 * findings.chains
        # Both ledgers, week by week and pseudonym by pseudonym.
        assert all(period.difference == 0 for period in findings.ledger)
        assert sum(period.withheld for period in findings.ledger) == 20_000_000
        equal, pseudonyms = findings.agreeing
        assert equal == pseudonyms - 2
        assert {one.reason for one in findings.revocations} == {"over_budget", "equivocation"}
        assert all(one.spent and not one.accepted for one in findings.revocations)
        same, windows = findings.equal_windows
        assert same == windows > 40  # every draw: the flights decide how many there are.
        # Everything planted is in quarantine, and nothing else.
        assert findings.quarantine
        assert all(one.as_planted for one in findings.quarantine)
        # Intervals of one window depend on each other: some 350 say as much as 100 that do not.
        together = findings.coverage[-1]
        assert together.total > 100  # every draw: each window has several intervals.
        check_at_least(100 * together.hits // together.total, 100, 0.95)
        for releases in findings.sharpening:
            assert releases[-1].by_level[:-1] == (0, 0)
        for name in ("report.html", "results.html"):
            # every draw: charts and tables have a size.
            assert (folder / "demo" / name).stat().st_size > 100_000

    def test_the_report_fetches_nothing(self, page: Html, content: str) -> None:
        assert {tag for tag, _ in page.tags}.isdisjoint(
            {"script", "link", "img", "iframe", "object", "image"}
        )
        assert not page.values("src")
        links = set(page.values("href", "xlink:href")) - {"results.html"}
        assert all(link.startswith("#") for link in links)
        assert "://" not in content
        assert "@import" not in content
        assert set(re.findall(r"url\(.", content)) <= {"url(#"}

    def test_every_chart_is_described_in_the_stylesheet_s_colours(
        self, page: Html, content: str
    ) -> None:
        titles = re.findall(r'role="img"><title>([^<]+)</title>', content)
        assert len(titles) == content.count('role="img"') == 6
        style = "".join(each.read_text("utf-8") for each in STYLES)
        assert not page.values("style")
        used = set(re.findall(r"var\((--[a-z0-9-]+)\)", " ".join(page.values("fill", "stroke"))))
        assert {"--estimate", "--truth", "--every", "--level0", "--level4"} <= used
        assert all(f"{name}: #" in style for name in used)
        assert not re.search(r"#[0-9a-f]{6}", " ".join(page.values("fill", "stroke")))
        classes = {name for value in page.values("class") for name in value.split()}
        assert classes <= set(re.findall(r"\.([a-z][a-z0-9-]*)", style))

    def test_names_and_numbers_are_written_as_they_are(self, page: Html, content: str) -> None:
        for text in ('<b>&amp "q": ', "336,776", "1.64 M", "over_budget", "1,300 of 1,458"):
            assert text in page.text
        assert "<b>&amp" not in content
        assert not re.search(r"\b(nan|inf|None)\b", page.text)
        assert not re.search(r"nan|inf", " ".join(page.values(*PLACES)))

    def test_what_is_not_as_it_should_be_is_marked(self, unlucky: Findings, content: str) -> None:
        assert "<li>delayed, from 6 December: 7 reports, the plan asks for 20</li>" in content
        assert content.count('<span class="bad">too few</span>') == 1
        assert content.count('<span class="bad">differs</span>') == 1
        with redirect_stdout(io.StringIO()) as printed:
            story.found(unlucky)
        told = printed.getvalue()
        assert re.search(r"destinations +1,300 of 1,458 +89.2 % +1,360 at least +TOO FEW", told)
        assert "DIFFERS: late" in told

    def test_every_reason_that_can_be_planted_is_explained(self, findings: Findings) -> None:
        """An unknown reason, or fault, would stop the template."""
        reasons = {reason for reason, _ in GARBAGE} | {Reason.REVOKED, Reason.CORRUPT_LOG}
        quarantine = [Quarantined(reason.label, 1, 1) for reason in reasons]
        write_report(replace(findings, quarantine=quarantine), Path(os.devnull), "results.html")
