"""The application: who is let in, which answers may be kept, and what is said without results."""

from __future__ import annotations

import asyncio
import html
import json
import re
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from asgi_client import exchange
from fastapi import FastAPI
from html_pages import Html
from invented_results import NASTY, PLAN, app_of, ask, changed_results, write_results

from pipelines.http.server import HeadFilter, is_loopback
from pipelines.results.reader import ResultsReader
from pipelines.web import rendering
from pipelines.web.access import Access, new_token, token_of
from pipelines.web.application import HEADERS, Site, application
from sotto.errors import ParameterError
from sotto.plan.segments import Experiment

TOKEN = "a token of this test".replace(" ", "-")
THEME = "/metrics/app.example/look/1/theme"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def app(url):
    return app_of(url)


@pytest.fixture(scope="module")
def guarded(url):
    return app_of(url, Access(TOKEN))


def test_all_pages_that_are_linked_are_there_and_no_other(app):
    for path in ("/", "/plans", "/health", THEME, "/plans/app.example/look/1"):
        answer = ask(app, path)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert NASTY not in answer.text
    others = [
        THEME.replace("/1/", f"/{each}/") for each in ("01", "0000000001", "١", "10000000001")
    ]
    for path in (*others, f"{THEME}?window=12", "/metrics/app.example/look/1/none",
                 "/metrics/app.example/look/one/theme", "/plans/app.example/look/2", "/favicon.ico",
                 "/static/any/..%2fpages.py", f"/metrics/app.example/look/1/{NASTY}"):  # fmt: skip
        answer = ask(app, path)
        assert (answer.status, NASTY in answer.text) == (404, False), path
    # The last day of the plan, as it is written there.
    text = Html(ask(app, "/plans").text).text
    assert "31 Dec 2099" in text
    assert "23:59" not in text


def test_windows_are_chosen_by_address(app):
    first = ask(app, f"{THEME}?window=1735776000000").text
    assert "<b>2 Jan 2025 to 9 Jan 2025</b>" in first
    assert 'rel="prev"' not in first
    assert f'href="{THEME}?window=1736380800000" rel="next"' in first
    assert "<b>16 Jan 2025 to 23 Jan 2025</b>" in ask(app, THEME).text


def test_a_window_s_estimates_are_linked_as_data(app):
    page = Html(ask(app, f"{THEME}?window=1735776000000").text)
    (address,) = [each for each in page.values("href") if each.endswith("format=csv")]
    answer = ask(app, address)
    assert answer.headers["content-type"].startswith("text/csv")
    lines = answer.text.splitlines()
    assert [line.split(",")[4] for line in lines[1:]] == ["2025-01-02T00:00:00.000Z"] * 3


def test_charts_after_the_first_are_drawn_when_a_browser_asks_for_them(app):
    text = ask(app, THEME).text
    images = [each for tag, each in Html(text).tags if tag == "img"]
    assert text.count('role="img"') == 1
    assert len({each["src"] for each in images}) == len(images) >= 3
    for each in images:
        assert each["loading"] == "lazy"
        # Another revision has another address, so that no browser shows its old chart.
        assert re.search(r"[?&]revision=[0-9a-f]{16}$", each["src"])
        drawn = ask(app, each["src"]).text
        assert f"<dc:title>{html.escape(each['alt'])}</dc:title>" in drawn


def test_every_answer_forbids_what_a_page_does_not_need(app, guarded):
    answers = [ask(app, "/"), ask(app, "/none"), ask(app, "/api/v1/metrics"), ask(guarded, "/"),
               ask(app, "/", host="evil.example"), ask(app, "/revision")]  # fmt: skip
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_machine_s_own_names_are_answered_and_none_that_only_points_here(app, url):
    for host in ("localhost", "127.0.0.1:8480", "[::1]:8480", "LOCALHOST:1"):
        assert ask(app, "/", host=host).status == 200
    for host in ("evil.example", "localhost.evil.example:8480", "[::1]x", ""):
        assert ask(app, "/", host=host).status == 421
    proxied = app_of(url, Access(TOKEN, hosts=("localhost", "results.example")))
    assert ask(proxied, "/", host="results.example").status == 401


def test_without_the_token_nothing_is_shown(guarded):
    for path in ("/", THEME, "/health", "/none", "/openapi.json"):
        answer = ask(guarded, path)
        assert answer.status == 401
        assert '<form method="post" action="/login"' in answer.text
        assert "theme" not in answer.text
    for path in ("/api/v1/estimates", "/revision", "/api/v1/openapi.json"):
        answer = ask(guarded, path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "token is needed" in json.loads(answer.text)["title"]


def test_a_program_gives_the_token_in_a_header(guarded):
    given = ask(guarded, "/api/v1/metrics", authorization=f"Bearer {TOKEN}")
    assert given.status == 200
    for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ", f"Basic {TOKEN}", "ü"):
        assert ask(guarded, "/", authorization=wrong).status == 401


def test_a_browser_gives_it_in_a_form_and_gets_a_cookie_without_it(guarded):
    guarded = HeadFilter(guarded, HEADERS)
    wrong = ask(guarded, "/login", "POST", b"token=wrong")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    assert 'role="alert"' in wrong.text
    right = ask(guarded, "/login", "POST", f"token={TOKEN}".encode())
    assert (right.status, right.headers["location"]) == (303, "/")
    cookie, *attributes = right.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert TOKEN not in cookie
    assert "Secure" not in attributes
    for said, secure in (("https", True), ("HTTPS, http", True), ("http, https", False)):
        behind = {"x-forwarded-proto": said}
        tls = ask(guarded, "/login", "POST", f"token={TOKEN}".encode(), **behind)
        assert tls.headers["set-cookie"].endswith("; Secure") == secure
    shown = ask(guarded, "/", cookie=cookie)
    assert (shown.status, "Sign out" in shown.text) == (200, True)
    # Nothing in a cookie is decoded.
    for other in (cookie[:-1], cookie.replace("=", '="', 1) + '"'):
        assert ask(guarded, "/", cookie=other).status == 401
    assert ask(guarded, "/login", "POST", b"x" * 5000).status == 413


def test_a_form_that_does_not_arrive_is_not_waited_for(guarded, monkeypatch):
    monkeypatch.setattr("pipelines.http.problems.BODY_SECONDS", 0.01)
    host = [("host", "localhost")]
    answer = asyncio.run(exchange(guarded, "POST", "/login", b"t", headers=host, pause=600))
    assert (answer.status, answer.headers["connection"]) == (408, "close")


def test_the_framework_traces_no_request(tmp_path, monkeypatch):
    trace = pytest.importorskip("opentelemetry.trace")
    asked = []
    monkeypatch.setattr(
        trace, "get_tracer_provider", lambda: asked.append(1) or trace.NoOpTracerProvider()
    )
    assert ask(app_of(write_results(tmp_path)), "/healthz").status == 200
    assert asked == []
    ask(FastAPI(), "/")
    assert asked


def test_signing_out_ends_the_session_wherever_its_cookie_is(guarded):
    def signed_in():
        answer = ask(guarded, "/login", "POST", f"token={TOKEN}".encode())
        return answer.headers["set-cookie"].partition(";")[0]

    here, elsewhere = signed_in(), signed_in()
    assert here != elsewhere
    assert "Max-Age=0" in ask(guarded, "/logout", "POST", cookie=here).headers["set-cookie"]
    assert ask(guarded, "/", cookie=here).status == 401
    assert ask(guarded, "/api/v1/metrics", cookie=here).status == 401
    assert ask(guarded, "/", cookie=elsewhere).status == 200
    # A request without a session ends none.
    assert ask(guarded, "/logout", "POST", cookie="sotto=").status in (303, 401)
    assert ask(guarded, "/", cookie=elsewhere).status == 200


def test_nothing_can_be_written_and_methods_that_there_are_are_named(app):
    for path in ("/", THEME, "/api/v1/metrics", "/api/v1/shares"):
        for method in ("POST", "PUT", "DELETE"):
            answer = ask(app, path, method)
            assert answer.status == 405
            assert sorted(answer.headers["allow"].split(", ")) == ["GET", "HEAD"]
    assert ask(app, "/api/v1/shares", "HEAD").status == 200
    assert ask(app, "/api/v1/plans", "HEAD").status == 200


def test_the_public_has_no_page_or_route_about_operation(url):
    public = app_of(url, Access(public=True))
    front = ask(public, "/")
    assert (front.status, "/health" in front.text) == (200, False)
    for path in ("/health", "/api/v1/health", "/api/v1/budgets", "/api/v1/rejections"):
        assert ask(public, path).status == 404
    assert ask(public, "/api/v1/shares").status == 200


def test_a_page_is_kept_until_the_results_change(tmp_path):
    app = app_of(write_results(tmp_path))
    before, at = ask(app, THEME), ask(app, "/revision")
    # A proxy that compresses puts W/ before it.
    for etag in (before.headers["etag"], f"W/{before.headers['etag']}"):
        again = ask(app, THEME, if_none_match=etag)
        assert (again.status, again.text) == (304, "")
    assert ask(app, "/revision", if_none_match=at.headers["etag"]).status == 304
    write_results(tmp_path, generation=2, windows=4)
    changed = ask(app, "/revision", if_none_match=at.headers["etag"])
    assert changed.status == 200
    after = ask(app, THEME, if_none_match=before.headers["etag"])
    assert "<b>23 Jan 2025 to 30 Jan 2025</b>" in after.text
    assert f'content="{json.loads(changed.text)["revision"]}"' in after.text


def test_before_the_first_run_the_page_says_so_and_looks_again(tmp_path):
    app = app_of(f"sqlite:///{tmp_path / 'results.db'}")
    waiting = ask(app, "/")
    assert (waiting.status, waiting.headers["retry-after"]) == (503, "5")
    assert "No results yet" in waiting.text
    assert '<meta http-equiv="refresh" content="5">' in waiting.text
    assert json.loads(ask(app, "/revision").text) == {"revision": ""}
    write_results(tmp_path)
    assert "Which theme" in ask(app, "/").text


def test_what_is_wrong_with_a_database_is_said_but_not_to_the_public(tmp_path):
    file = tmp_path / "results.db"
    file.write_bytes(b"no database" * 1000)
    url = f"sqlite:///{file}"
    damaged = ask(app_of(url), "/")
    assert (damaged.status, "not a database" in damaged.text) == (503, True)
    assert "not a database" not in ask(app_of(url, Access(public=True)), "/").text
    file.unlink()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE meta (id INTEGER, state TEXT)")
        connection.execute("INSERT INTO meta VALUES (1, 'mine')")
        connection.execute("CREATE TABLE windows (window_start INTEGER)")
    older = ask(app_of(url), "/")
    assert (older.status, "release before 0.4" in older.text) == (503, True)


def test_an_error_in_the_page_says_where_and_nothing_of_what(tmp_path):
    class Broken(ResultsReader):
        def revision(self) -> str:
            raise ValueError("a-secret")

    warned: list[str] = []
    reader = Broken(f"sqlite:///{tmp_path / 'results.db'}")
    app = application(Site(reader, Access()), warn=warned.append)
    for _ in range(2):
        answer = ask(app, "/")
        assert (answer.status, "ValueError, test_application.py" in answer.text) == (500, True)
        assert "a-secret" not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert len(warned) == 1
    assert "a-secret" not in warned[0]


def test_a_page_that_is_kept_waits_for_none_that_is_made(url, monkeypatch):
    app = app_of(url)
    kept = ask(app, "/").text
    begun, go_on, make = threading.Semaphore(0), threading.Event(), rendering.make

    def slowly(*given):
        begun.release()
        assert go_on.wait(600)
        return make(*given)

    monkeypatch.setattr(rendering, "make", slowly)
    monkeypatch.setattr("pipelines.http.kept._WAITING", 1)
    crowded = app_of(url)
    with ThreadPoolExecutor(3) as pool:
        try:
            asked = [pool.submit(ask, app, THEME)]
            assert begun.acquire(timeout=600)
            assert pool.submit(ask, app, "/").result(600).text == kept
            asked.append(pool.submit(ask, crowded, THEME))
            assert begun.acquire(timeout=600)
            busy = ask(crowded, "/")
            assert (busy.status, busy.headers["retry-after"]) == (503, "5")
            assert "This page tries again." in busy.text
        finally:
            go_on.set()
    assert [each.result().status for each in asked] == [200, 200]
    assert ask(crowded, "/").status == 200


@pytest.mark.parametrize(
    "change",
    [
        "stored_windows SET metric = 'gone' WHERE metric = 'theme'",
        "stored_estimates SET item = 'half' WHERE kind = 'quantile' AND item = '0.5'",
        "stored_estimates SET value = 1e308, low = -1e308, high = 1e308",
    ],
)
def test_what_no_device_sends_breaks_no_page(tmp_path, change):
    app = app_of(changed_results(tmp_path, f"UPDATE {change}"))
    for path in ("/", *(f"/metrics/app.example/look/1/{each}" for each in ("speed", "page"))):
        answer = ask(app, path)
        assert (answer.status, "nan" in answer.text) == (200, False)


def test_a_segment_has_its_own_number_of_reports(tmp_path):
    # As of a vector, each of whose coordinates some of the reports are about.
    shown = "SET n = 100, withheld = NULL WHERE segment = 'os=linux'"
    url = changed_results(tmp_path, f"UPDATE stored_estimates {shown}")
    assert '<th scope="row">os=linux</th><td class="n">893</td>' in ask(app_of(url), THEME).text


def test_a_token_file_holds_a_long_token(tmp_path):
    file = tmp_path / "token"
    for text in ("", "short", "x" * 19, "with a space in the midst of it", "é" * 30):
        file.write_text(text, "utf-8")
        with pytest.raises(ParameterError, match="at least 20 characters"):
            token_of(file)
    file.write_text(f"{TOKEN}\n", "utf-8")
    assert token_of(file) == TOKEN
    assert len(new_token()) >= 43


def test_loopback_is_the_machine_s_own_addresses_alone():
    assert all(map(is_loopback, ("127.0.0.1", "127.77.66.55", "::1", "localhost")))
    others = ("", "0.0.0.0", "::", "127.0.0.1.example", "10.0.0.1", "localhost.example")
    assert not any(map(is_loopback, others))


def test_ranges_and_what_they_are_compared_with_are_in_the_address(app):
    plain = ask(app, THEME).text
    assert 'name="against"' in plain
    assert "Differences" not in plain
    found = ask(app, f"{THEME}?since=2025-01-02&until=2025-01-23&under=10").text
    assert "10 % forged" in Html(found).text
    assert "All reports, 2 Jan 2025 to 23 Jan 2025" in found
    assert "2,700" in found
    assert 'value="2025-01-02"' in found
    compared = ask(app, f"{THEME}?since=2025-01-09&against=2025-01-02..2025-01-09").text
    assert "9 Jan 2025 to 23 Jan 2025, compared with 2 Jan 2025 to 9 Jan 2025" in compared
    assert 'value="2025-01-02..2025-01-09"' in compared
    # The largest is that of light, for 0.6 − 1.96 errors: 1.96 √(0.552 · 0.448 (1/900 + 1/1800)).
    assert "may move these differences by up to ± 3.98 points more" in compared
    assert NASTY not in compared


def test_arms_are_compared_on_the_page_of_experiments_alone(url):
    plan = replace(PLAN, experiment=Experiment("os", ("linux", "mac"), 1_000_000))
    app = application(Site(ResultsReader(url, plans=[plan]), Access()))
    assert '<option value="os=linux"></option>' not in ask(app, THEME).text
    refused = ask(app, f"{THEME}?segment=os%3Dlinux&against=all").text
    assert 'Arms are compared on the page <a href="/experiments">' in refused


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("since=never", "A time must be such as 2013-06-01"),
        ("since=2026-01-01", "lies from 2026-01-01; windows take 7d"),
        ("against=<i>", "compare with must be"),
        ("segment=<i>", "there are results by"),
        ("since=2025-02-01&until=2025-01-01", "must end after it begins"),
    ],
)
def test_a_range_that_cannot_be_says_why_on_the_page(app, query, said):
    answer = ask(app, f"{THEME}?{query}")
    assert answer.status == 200
    assert said in answer.text
    assert "<i>" not in answer.text
