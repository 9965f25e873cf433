"""The pages: what they say, that all names are escaped, and that nothing is fetched from them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import escape

import pytest
import sqlalchemy as sql
from html_pages import Html
from invented_results import NASTY, PLAN, app_of, ask, changed_results, write_results

from pipelines.exporter.database import WatchedResults
from pipelines.results.ordinals import one_mean
from pipelines.results.reader import ResultsReader
from pipelines.web import charts, metric, overview, rendering, views
from pipelines.web.pages import HEALTH, METRIC, OVERVIEW, PLANS
from pipelines.web.pages import PLAN as PLAN_PAGE
from pipelines.web.snapshot import ResultsSnapshot
from pipelines.web.views import MetricView, OverviewView, PageView, PlanView


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    return snapshot_of(write_results(tmp_path_factory.mktemp("results")))


@pytest.fixture(scope="module")
def file(snapshot):
    return rendering.static_file(snapshot)


@pytest.fixture(scope="module")
def file_html(file):
    return Html(file)


def snapshot_of(url: str) -> ResultsSnapshot:
    reader = ResultsReader(url, plans=[PLAN])
    return ResultsSnapshot(reader, reader.revision())


def metric_view(snapshot, name, at=None, *, public=False, links=None) -> MetricView:
    """Return the view of a window of a metric: the newest that is shown, or by its place."""
    key = next(each for each in snapshot.newest if each.metric == name)
    windows = snapshot.windows(key)
    shown = views.newest(windows) if at is None else windows[at]
    return MetricView(snapshot, links or rendering.ServedLinks(), public, key=key, shown=shown)


def section(view, named) -> str:
    """Return a section of a metric's page by its title."""
    return next(html for _, title, html in rendering.make(METRIC, view).sections if title == named)


def page(snapshot, which, *, public=False, name=None) -> str:
    links = rendering.ServedLinks()
    view = PageView(snapshot, links, public)
    if which is METRIC:
        view = metric_view(snapshot, name, public=public)
    elif which is PLAN_PAGE:
        view = PlanView(snapshot, links, public, plan=PLAN)
    return rendering.served_page(rendering.make(which, view), leave=False)


def test_pages_have_no_style_or_script_inside_and_only_our_own_addresses(snapshot):
    for which, name in ((OVERVIEW, None), (PLANS, None), (HEALTH, None), (PLAN_PAGE, None),
                        *((METRIC, each.name) for each in PLAN.metrics)):  # fmt: skip
        text = page(snapshot, which, name=name)
        html = Html(text)
        assert html.values("style", "onclick", "onload") == []
        assert "style" not in [tag for tag, _ in html.tags]
        assert all(each["src"].startswith("/static/") for tag, each in html.tags if tag == "script")
        assert all(each[0] in "/#" for each in html.values("href", "action", "src"))
        assert NASTY not in text
        assert "<i>" not in text
        assert not re.search(r"\b(nan|inf|None)\b", html.text)


def test_charts_are_named_and_tables_have_captions_and_headers(file, file_html):
    charts = re.findall(r'role="img"><title>([^<]+)</title>', file)
    assert len(charts) == file.count('role="img"') >= 7
    assert "Reports of theme by level, window by window" in charts
    tags = [tag for tag, _ in file_html.tags]
    assert tags.count("table") == tags.count("caption") > 10
    assert all("scope" in each for tag, each in file_html.tags if tag == "th")
    assert ">mean (s)<" in file
    assert "1 of 2 candidates are significant, of which 0.42 are false" in file_html.text
    assert "told from zero four times in five; among so many candidates" in file_html.text
    assert "light: 60 %, interval of 95 % 56 % to 64 %" in file_html.text


def test_the_file_stands_alone(file, file_html):
    """It fetches nothing, its one style is the one that it allows, its links have a target."""
    assert {"script", "link", "img", "iframe", "form"}.isdisjoint(tag for tag, _ in file_html.tags)
    links = set(file_html.values("href", "xlink:href"))
    assert all(each.startswith("#") for each in links)
    ids = file_html.values("id")
    charts = {each for each in links if re.fullmatch(r"#[mp]?[0-9a-f]{10}|#DejaVu.*", each)}
    assert {each[1:] for each in links - charts} <= set(ids)
    named = [each for each in ids if not re.fullmatch(r"[mp][0-9a-f]{10}", each)]
    assert len(named) == len(set(named))
    style = re.search(r"<style>(.*?)</style>", file, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in file
    assert "://" not in re.sub(r"http://www.w3.org/\d+/\w+", "", file)


def test_colours_are_the_stylesheet_s(file, file_html):
    style = rendering.static("style.css").decode()
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", " ".join(file_html.values("fill", "stroke"))))
    assert {"--estimate", "--wash", "--every", "--level4"} <= used
    assert all(f"{name}: #" in style for name in used)
    assert not re.search(r"#[0-9a-f]{6}", " ".join(file_html.values("fill", "stroke")))


def test_what_is_withheld_is_named_with_its_reason(snapshot, file_html):
    assert "from 9 Jan 2025, is withheld: 7 reports, the plan asks for 20" in file_html.text
    made = rendering.make(METRIC, metric_view(snapshot, "speed", -1))
    html = Html(rendering.served_page(made, leave=False))
    assert "Estimates are withheld: 7 reports, the plan asks for 20" in html.text
    assert "12.5" not in html.text


def test_a_biased_estimate_says_so_and_has_no_interval_even_if_one_is_stored(tmp_path):
    of_theme = "method = 'biased' WHERE metric = 'theme'"
    url = changed_results(tmp_path, f"UPDATE stored_estimates SET {of_theme}")
    biased = snapshot_of(url)
    assert "light60 %biased, no interval" in Html(page(biased, OVERVIEW)).text
    shown = Html(page(biased, METRIC, name="theme")).text
    assert "60 % biased, no interval" in shown
    assert "biased: of what devices sent, which need not be what was true" in shown
    assert "interval of 95 % 5" not in shown
    assert "biased" not in Html(page(biased, METRIC, name="page")).text
    (exposed,) = WatchedResults(url, 1000).read().values()
    assert {each.high for each in exposed.estimates if each.metric == "theme"} == {None}
    (row, *_) = json.loads(ask(app_of(url), "/api/v1/shares?metric=theme").text)["shares"]
    assert (row["share"], row["low"], row["method"], row["biased"]) == (0.6, None, "biased", True)


def test_the_newest_complete_window_stands_for_a_metric_with_what_is_so_far_beside_it(tmp_path):
    last = "window_start = (SELECT max(window_start) FROM stored_windows WHERE metric = 'theme')"
    url = changed_results(
        tmp_path,
        f"UPDATE stored_windows SET complete = 0 WHERE metric = 'theme' AND {last}",
        f"UPDATE stored_estimates SET complete = 0 WHERE metric = 'theme' AND {last}",
        f"UPDATE stored_estimates SET value = 0.99 WHERE item = 'light' AND {last}",
    )
    snapshot = snapshot_of(url)
    overview = Html(page(snapshot, OVERVIEW)).text
    assert "light60 %56 % to 64 %" in overview
    assert "So far, from 16 Jan 2025 (900 reports): light 99 % (" in overview
    shown = page(snapshot, METRIC, name="theme")
    assert "9 Jan 2025 to 16 Jan 2025" in Html(shown).text
    assert "16 Jan 2025 (so far)" in Html(shown).text
    assert "from 16 Jan 2025 so far, light: 99 %" in Html(shown).text
    app = app_of(url)
    for path in ("latest_estimates?metric=theme&item=light", "shares?newest=true&item=light"):
        rows = next(iter(json.loads(ask(app, f"/api/v1/{path}").text).values()))
        assert {row["complete"] for row in rows} == {True}
        assert {row.get("value", row.get("share")) for row in rows} == {0.6}
    windows = json.loads(ask(app, "/api/v1/windows?metric=theme&segment=").text)["windows"]
    assert [row["complete"] for row in windows] == [True, True, False]
    (exposed,) = WatchedResults(url, 1000).read().values()
    assert {row.value for row in exposed.estimates if row.item == "light"} == {0.6}
    (window,) = [each for key, each in exposed.windows.items() if key.metric == "theme"]
    assert window.window.complete
    assert window.last.window_end > window.window.window_end


def test_the_public_has_estimates_and_plans_alone(snapshot, file_html):
    shown = Html(rendering.static_file(snapshot, public=True)).text
    assert "12.5 s" in shown
    assert "Which theme" in shown
    assert "os (linux, mac, other)" in shown
    of_the_job = ("generation 1", "reports read up to")
    for operators_own in ("Data health", "4,321", "older than any", "over budget", "1,500",
                          *of_the_job):  # fmt: skip
        assert operators_own in file_html.text
        assert operators_own not in shown
    assert not any(each in page(snapshot, PLANS, public=True) for each in of_the_job)


def test_a_mean_between_two_bounds_is_one_figure_and_bins_have_no_curve(snapshot):
    assert "at least one80 %76 % to 84 %" in Html(page(snapshot, OVERVIEW)).text
    shown = Html(page(snapshot, METRIC, name="visits")).text
    assert "mean rank at" not in shown
    assert "19 %" not in shown
    assert "31 %" not in shown
    assert "40 %" in shown
    assert "Distribution" not in shown
    assert "Distribution" in page(snapshot, METRIC, name="speed")
    (key,) = (each for each in snapshot.newest if each.metric == "visits")
    rows = snapshot.history(key, [("mean", "")], snapshot.windows(key))["mean", "", ""].values()
    assert [(row.value, row.low, row.high) for row in rows] == [(2.5, 2.26, 2.74)] * 2
    known = {"item": "at least", "reach": ((3.0, 1.0),), "forged_down": 0.1, "forged_up": 0.3}
    least = replace(next(iter(rows)), **known)
    most = replace(least, item="at most", reach=((2.0, 4.0),), forged_down=0.3, forged_up=0.1)
    (one,) = one_mean([least, most])
    assert (one.reach, one.forged_down, one.forged_up) == (((3.0, 4.0),), 0.2, 0.2)


def test_strings_without_candidates_say_how_to_give_them(tmp_path):
    url = changed_results(
        tmp_path,
        "DELETE FROM stored_estimates WHERE item != '' AND metric = 'page'",
        "UPDATE stored_estimates SET value = 1, low = 1, high = 1, standard_error = 0 "
        "WHERE metric = 'page'",
    )
    bare = snapshot_of(url)
    for shown in (page(bare, OVERVIEW), page(bare, METRIC, name="page")):
        assert "No candidates are known, the strings to look for." in Html(shown).text
        assert "unexplained" not in Html(shown).text


@pytest.mark.parametrize(
    ("value", "low", "high", "told"),
    [
        (0.2, 0.16, 0.24, "make up 20 % of reports (interval 16 % to 24 %)"),
        (-0.4, -1.1, 0.3, "make up at most 30 % of reports, or none"),
        (-0.4, -2, 1.5, "make up at most 100 % of reports, or none"),
    ],
)
def test_strings_without_a_candidate_are_a_share_that_there_can_be(
    tmp_path, value, low, high, told
):
    change = f"UPDATE stored_estimates SET value = {value}, low = {low}, high = {high}"
    url = changed_results(tmp_path, f"{change} WHERE kind = 'unexplained'")
    assert told in Html(page(snapshot_of(url), METRIC, name="page")).text


def test_every_kind_has_a_sentence_and_intervals_have_one_together():
    words = rendering.environment().get_template("words.html.j2").module
    kinds = "beyond reached share group mean missing quantile cdf bit string unexplained"
    assert all("<p>" in words.meaning(k) for k in [*kinds.split(), "false_names", "conversion"])
    assert words.meanings(kinds.split()).count("The interval of 95 %") == 1
    assert "The interval of 95 %" not in words.meanings(["quantile", "cdf"])


def test_a_window_s_levels_are_beside_what_the_plan_predicts(snapshot):
    view = metric_view(snapshot, "theme", 0)
    counts, _, errors = zip(*metric.sharpening(view)["levels"], strict=True)
    assert counts == (0, 300, 600)
    html = section(view, "How the window sharpens")
    assert re.findall(r'</th><td class="n">([0-9.]+)</td>', html) == ["0.5", "1", "2"]
    assert list(errors) == sorted(errors, reverse=True)
    assert 0.01 < errors[-1] < 0.05


def test_segments_are_a_plot_and_a_table_and_withheld_ones_say_so(snapshot):
    html = section(metric_view(snapshot, "theme", -1, links=rendering.Anchors()), "By segment")
    shown = Html(str(html))
    assert "os=linux: light: 70 %, interval of 95 % 66 % to 74 %" in shown.text
    assert "withheld: 7 reports, the plan asks for 20" in shown.text
    assert "os=<b>" in shown.text
    assert "os=<b>" not in str(html)
    assert html.count('role="img"') == 1


def test_a_name_that_is_too_long_for_a_chart_is_its_title():
    name = "os=linux,app_version=2025.10.1-<beta>"
    values = [(0.1, None, "")] * 2
    svg = charts.intervals("By segment", ["short", name], values, "share", "share").inline
    assert f"<title>{escape(name)}</title>" in svg
    # The part that tells names apart may be at either end.
    assert ">os=linux,app_v…5.10.1-&lt;beta&gt;<" in svg
    assert "<title>short</title>" not in svg


def test_the_statements_of_the_first_page_do_not_grow_with_the_cards(snapshot):
    def statements_of(find: str, cards: int) -> int:
        own, found = ResultsSnapshot(snapshot.reader, snapshot.revision), []
        view = OverviewView(own, rendering.ServedLinks(), False, find=find)
        sql.event.listen(
            sql.Engine, "before_cursor_execute", count := lambda *a: found.append(a[2])
        )
        shown = overview.metrics(view)["cards"]
        sql.event.remove(sql.Engine, "before_cursor_execute", count)
        assert len(shown) == cards
        return len(found)

    assert statements_of("", 4) == statements_of("theme", 1) > 0
