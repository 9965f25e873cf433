"""Figures over time: figures and segments that are chosen, files of charts, boards, notes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import resource
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from xml.etree import ElementTree

import pytest
from html_pages import Html
from invented_results import PLAN, app_of, ask, write_results
from matplotlib.figure import Figure

from pipelines.results.api import create_router
from pipelines.results.notes import Notes, TimeNote
from pipelines.results.reader import ResultsReader
from pipelines.web import charts
from pipelines.web.access import Access
from pipelines.web.application import Site, application
from pipelines.web.boards import load_boards
from sotto.errors import ParameterError

THEME = "/metrics/app.example/look/1/theme"
BOARDS = """\
embed: [https://wiki.example]
boards:
  - name: looks
    title: How it looks
    charts:
      - {metric: theme, since: 2025-01-09, items: [share light, share mauve]}
      - {metric: gone, since: "", until: }
      - {metric: theme, segment: os=windows}
      - {metric: theme, items: [light]}
      - {metric: theme, since: 2031-01-01}
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return app_of(write_results(tmp_path_factory.mktemp("plain")))


@pytest.fixture
def notes(tmp_path):
    return Notes(tmp_path / "notes.yaml")


@pytest.fixture
def app(tmp_path, notes):
    """The page with boards and notes."""
    path = tmp_path / "boards.yaml"
    path.write_text(BOARDS, "utf-8")
    reader = ResultsReader(write_results(tmp_path), plans=[PLAN])
    site = Site(reader, Access(), boards=load_boards(path, pytest.fail), notes=notes)
    return application(site, [create_router(reader, notes=notes)])


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def course(app, query: str) -> list[dict[str, str]]:
    """Return the rows of the chart over time, for what is chosen."""
    return cells(ask(app, f"{THEME}/charts/course-1.csv?{query}").text)


def post(app, body: str, kind: str = "application/json"):
    return ask(app, "/api/v1/notes", "POST", body.encode(), content_type=kind)


def test_the_figures_over_time_are_those_that_are_chosen(plain):
    rows = course(plain, "item=share+other")
    assert {row["figure"] for row in rows} == {"other"}
    assert [row["value"] for row in rows] == ["-0.01", "0.0", "0.01"]
    shown = ask(plain, f"{THEME}?item=share+other").text
    assert 'value="share other" checked' in shown
    assert 'value="share light" checked' not in shown


def test_a_segment_is_drawn_beside_the_whole(plain):
    rows = course(plain, "segment=os%3Dlinux&item=share+light")
    by_line = {
        of: [row["value"] for row in rows if row["of"] == of] for of in ("all reports", "os=linux")
    }
    assert by_line == {"all reports": ["0.6"] * 3, "os=linux": ["", "", "0.7"]}


@pytest.mark.parametrize(("under", "bands"), [("10", 2), ("", 1), ("x", 1), ("101", 1)])
def test_the_band_of_forged_reports_is_behind_that_of_the_noise(plain, under, bands):
    drawn = ask(plain, f"{THEME}/charts/course-1.svg?item=share+light&under={under}").text
    assert drawn.count('id="FillBetween') == bands
    shown = Html(ask(plain, f"{THEME}?under={under}").text).text
    assert ("if up to 10 % of the reports are forged" in shown) is (bands == 2)


def test_each_segment_is_a_panel_of_one_scale_with_name_and_numbers_at_both_ends(plain):
    rows = course(plain, "segment=os")
    assert {row["figure"] for row in rows} == {"os=linux: light", "os=<b>: light"}
    drawn = ask(plain, f"{THEME}/charts/course-1.svg?segment=os").text
    ticks = Counter(re.findall(r">(-?[\d.]+) %<", drawn))
    assert len(ticks) > 1
    assert set(ticks.values()) == {4}
    assert drawn.count(">os=linux: light<") == 2


def test_a_range_limits_the_chart_and_what_it_is_compared_with_widens_it(plain):
    def starts(query: str) -> set[str]:
        return {row["window_start"][:10] for row in course(plain, query)}

    assert starts("since=2025-01-09") == {"2025-01-09", "2025-01-16"}
    assert starts("since=2025-01-09&against=2025-01-02..2025-01-09") == {
        "2025-01-02", "2025-01-09", "2025-01-16"}  # fmt: skip


def test_addresses_of_other_windows_keep_what_was_asked(plain):
    shown = ask(plain, f"{THEME}?segment=os%3Dlinux&since=2025-01-02&item=share+light").text
    links = [unescape(each) for each in re.findall(r'href="([^"]*window=[^"]*)"', shown)]
    assert len(links) >= 3
    assert all("segment=os%3Dlinux" in each and "item=share+light" in each for each in links)


def test_a_page_does_not_wait_for_a_chart_of_many_windows(tmp_path):
    app = app_of(write_results(tmp_path, windows=80))
    shown = ask(app, THEME).text
    assert 'role="img"' not in shown
    assert f'src="{THEME}/charts/course-1.svg?' in shown
    assert len(course(app, "item=share+light")) == 80


@pytest.mark.parametrize("name", ["course-1", "shares-1", "segments-1", "sharpening-1"])
def test_every_chart_is_a_file(plain, name):
    svg = ask(plain, f"{THEME}/charts/{name}.svg")
    assert svg.headers["content-type"].startswith("image/svg+xml")
    assert not re.search(r"var\(|style", svg.text)  # A page's policy forbids styles.
    assert re.search("<svg font-family=.*(#1f6fb2|#164f82)", svg.text, re.DOTALL)
    assert len(cells(ask(plain, f"{THEME}/charts/{name}.csv").text)) >= 2
    assert f"{THEME}/charts/{name}.png" in ask(plain, THEME).text


def test_a_chart_is_a_png_in_the_colours_of_a_light_page():
    made = charts.intervals("By segment", ["one"], [(0.1, (0.0, 0.2), "")], "share", "share")
    assert made.file("png").startswith(b"\x89PNG")
    assert "var(--estimate)" in made.inline


def chart_of(*value: float) -> charts.Chart:
    """Return a chart of one window, whose estimate is ``value`` with its interval."""
    line = charts.Line("", [datetime(2025, 1, 1, tzinfo=UTC)], [(value[0], value[1:], "")], [False])
    return charts.series("", [charts.SeriesPanel("", "GB", [line])], "")


def test_long_numbers_lie_within_a_chart():
    assert "<use" in chart_of(5e299, 4e299, 6e299).inline
    figure = chart_of(5e8, 4e8, 6e8)._figure()
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    assert "500,000,000" in [each.get_text() for each in axis.get_ticklabels()]
    assert all(map(figure.bbox.containsx, axis.get_tightbbox().intervalx))


def test_a_line_is_broken_where_no_windows_are_and_one_that_stands_alone_is_a_point():
    starts = [datetime(2025, 1, day, tzinfo=UTC) for day in (1, 8, 22)]
    line = charts.Line(
        *("", starts, [(0.1, (0.0, 0.2), "")] * 3, [False] * 3),
        ends=[each + timedelta(days=7) for each in starts],
    )
    panel, axes = charts.SeriesPanel("", "share", [line]), Figure().subplots()
    charts.series("", [panel], "").draw(axes)
    joined, alone = (each.get_xdata().tolist() for each in axes.lines[:2])
    first, second, last = charts.places(starts)
    assert joined == pytest.approx([first, second, math.nan, last], nan_ok=True)
    assert alone == [last]


@pytest.mark.parametrize(
    "name", ["course-2.svg", "course-x.svg", "gone-1.svg", "course-1.gif", "course-1.html"]
)
def test_no_other_file_is_there(plain, name):
    assert ask(plain, f"{THEME}/charts/{name}").status == 404


def test_a_board_shows_its_charts_and_says_what_is_missing(app):
    answer = ask(app, "/boards/looks")
    assert answer.status == 200
    assert "How it looks" in ask(app, "/").text
    # Neither all reports nor headlines stand for what is not there.
    missing = "theme share mauve, gone, theme os=windows, theme light, theme 2031-01-01"
    assert f"Nothing over time yet: {missing}." in answer.text
    assert "board-2" not in answer.text
    assert "item=share+light" in answer.text
    rows = cells(ask(app, "/boards/looks/charts/board-1.csv").text)
    assert [row["window_start"][:10] for row in rows] == ["2025-01-09", "2025-01-16"]
    assert ask(app, "/boards/other").status == 404


def test_only_the_origins_of_the_file_may_embed_a_chart_and_nothing_else(app):
    chart = ask(app, f"{THEME}/charts/course-1.html")
    assert "frame-ancestors https://wiki.example" in chart.headers["content-security-policy"]
    assert "<nav" not in chart.text
    assert "frame-ancestors 'none'" in ask(app, THEME).headers["content-security-policy"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("boards: 3", "boards"),
        ("embed: ['*']", "embed.1"),
        ("[", "YAML"),
        ("other: 1", "other"),
        (BOARDS.replace("2025-01-09", "soon"), "charts.1.since: a time must be"),
    ],
)
def test_a_file_of_boards_that_is_wrong_says_where(tmp_path, text, said):
    path, warnings = tmp_path / "boards.yaml", []
    assert load_boards(path, warnings.append).boards == ()
    assert "boards.yaml, so no boards" in warnings[0]
    path.write_text(text, "utf-8")
    with pytest.raises(ParameterError, match=said):
        load_boards(path, pytest.fail)


def test_notes_of_the_file_and_the_interface_are_on_the_axis(app, notes, tmp_path):
    (tmp_path / "notes.yaml").write_text("- {at: 2025-01-10, text: Release <4.2>}", "utf-8")
    assert ask(app, "/api/v1/notes", "OPTIONS").headers["allow"] == "GET, HEAD, POST"
    assert post(app, '{"at": "2025-01-12T12:00Z", "text": "Sale"}').status == 201
    shown = ask(app, THEME).text
    assert "10 Jan 2025: Release &lt;4.2&gt;" in shown
    assert "12 Jan 2025 12:00: Sale" in shown
    found = json.loads(ask(app, "/api/v1/notes").text)["notes"]
    assert [each["text"] for each in found] == ["Release <4.2>", "Sale"]
    assert [note.text for note in notes.read()] == ["Release <4.2>", "Sale"]
    links = re.findall(r'<a href="([^"]+)">before and after', shown)
    assert len(links) == 2
    by_system = unescape(re.search(r'<a href="([^"]+)">by os</a>\)', shown)[1])
    assert by_system == unescape(links[0]).replace("&against", "&segment=os&against")
    compared = Html(ask(app, unescape(links[0])).text).text
    assert "16 Jan 2025 to 23 Jan 2025, compared with 2 Jan 2025 to 9 Jan 2025" in compared


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ('{"at": "2025-01-12", "text": "x"}', "text/plain", 415),
        ('{"at": "never", "text": "x"}', "application/json", 422),
        ('{"at": "2025-01-12", "text": " "}', "application/json", 422),
        ('{"at": "2025-01-12", "text": "\\u007f"}', "application/json", 409),
        ('{"at": "2025-01-12"}', "application/json", 422),
        ("no json", "application/json", 422),
        ('{"at": "2025-01-12", "text": "%s"}' % ("x" * 5000), "application/json", 413),
    ],
)
def test_a_note_that_is_none_is_refused(app, notes, body, kind, status):
    assert post(app, body, kind).status == status
    assert notes.read() == []
    described = ask(app, "/api/v1/openapi.json").json()["paths"]["/api/v1/notes"]["post"]
    assert str(status) in described["responses"]


def test_a_chart_is_xml_whatever_is_in_a_note(app):
    assert post(app, r'{"at": "2025-01-12", "text": "Sale\u0001"}').status == 201
    read = "".join(ElementTree.fromstring(ask(app, f"{THEME}/charts/course-1.svg").text).itertext())
    assert "Sale\ufffd" in read


def test_a_note_is_refused_that_would_make_the_file_no_list(app, notes, tmp_path):
    (tmp_path / "notes.yaml").write_text("[{at: 2025-01-10, text: Sale}]", "utf-8")
    answer = post(app, '{"at": "2025-01-12", "text": "x"}')
    assert (answer.status, "notes.yaml" in answer.text) == (409, True)
    assert [note.text for note in notes.read()] == ["Sale"]
    assert "the note must be a mapping" in post(app, "[]").text


def test_a_note_that_the_disk_has_no_room_for_leaves_no_part_of_it(notes, tmp_path):
    notes.add(TimeNote(at="2025-01-10", text="Sale"))
    before = (tmp_path / "notes.yaml").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 9, limits[1]))
    try:
        with pytest.raises(OSError, match="no room for a note"):
            notes.add(TimeNote(at="2025-01-12", text="x"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "notes.yaml").read_bytes() == before


def test_the_public_reads_notes_and_adds_none(tmp_path, notes):
    reader = ResultsReader(write_results(tmp_path), plans=[PLAN])
    router = create_router(reader, public=True, notes=notes)
    app = application(Site(reader, Access(public=True), notes=notes), [router])
    assert ask(app, "/api/v1/notes").status == 200
    assert ask(app, "/api/v1/notes", "POST").headers["allow"] == "GET, HEAD"
    assert post(app, '{"at": "2025-01-12", "text": "x"}').status == 405


@pytest.mark.parametrize("find", ["THEME", "which"])
def test_metrics_are_found_by_their_names_and_descriptions(plain, find):
    shown = ask(plain, f"/?find={find}").text
    assert re.findall(r'data-metric="([^"]+)"', shown) == ["app.example/look/1/theme"]


def test_metrics_are_found_by_their_group(tmp_path):
    theme, *others = PLAN.metrics
    plan = replace(PLAN, metrics=(replace(theme, group="looks"), *others))
    site = Site(ResultsReader(write_results(tmp_path), plans=[plan]), Access(token="unseen" * 9))
    assert "unseen" not in f"{site!r} {site.access!r}"
    app = application(replace(site, access=Access()), [])
    assert '<a href="/?find=group:looks">looks</a>' in ask(app, "/").text
    assert "data-metric" not in ask(app, "/?find=none").text
    for find in ("group:looks", "group"):
        shown = ask(app, f"/?find={find}").text
        assert re.findall(r'data-metric="([^"]+)"', shown) == ["app.example/look/1/theme"]
