"""The pages in a real browser: clicks, keyboard, dark, narrow, live, without a script."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from invented_results import NASTY, PLAN, write_results
from serving import sotto

from deploy.browser import axe

pytestmark = [pytest.mark.slow, pytest.mark.real_randomness]

THEME = "/metrics/app.example/look/1/theme"
PAGES = ("/", "/plans", "/health", "/plans/app.example/look/1", THEME,
         "/metrics/app.example/look/1/speed", "/metrics/app.example/look/1/page")  # fmt: skip
#: Keeps what is said to who cannot see, for two seconds each time, until the page is loaded again.
NOTES = """() => {
    window.said = [];
    const note = () => window.said.push(document.getElementById("live").textContent);
    new MutationObserver(note).observe(document.body, { childList: true, subtree: true });
}"""
#: Rules of axe: WCAG 2.2 AA, and the order of headings among others.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: Milliseconds that a page may take to become what is waited for.
PATIENCE = 300_000


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Serve the results of a folder in a process, and yield the address."""
    plan = folder / "plan.json"
    plan.write_bytes(PLAN.to_json())
    database = f"sqlite:///{folder / 'results.db'}"
    with sotto("serve", "--port", "0", "--plan", plan, "--database", database, *options) as served:
        yield served[1]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        # As long as a value of a plan may be.
        patch.setattr("invented_results.NASTY", f"{NASTY:x<256}")
        write_results(folder)
    with serving(folder) as address:
        yield address


@pytest.fixture
def open_page(browser):
    """Open a page; at the end nothing may have been reported to the console."""
    contexts, reported = [], []

    def opened(url: str, **options: object):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: reported.append(message.text))
        page.on("pageerror", lambda error: reported.append(str(error)))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert reported == []


def test_an_analyst_clicks_from_the_overview_to_an_earlier_window(open_page, address):
    page = open_page(address)
    page.get_by_role("link", name="theme").click()
    page.get_by_role("heading", level=1, name="theme").wait_for()
    page.wait_for_load_state()
    assert page.get_by_role("img").count() >= 4  # every draw: results are invented.
    page.get_by_label("Window", exact=True).select_option("2 Jan 2025")
    page.get_by_role("button", name="Show window").click()
    page.wait_for_url("**?window=1735776000000")
    page.get_by_text("2 Jan 2025 to 9 Jan 2025").wait_for()
    page.get_by_role("link", name="later ›").click()
    page.wait_for_url("**?window=1736380800000")
    page.get_by_role("link", name="look 1").click()
    page.get_by_role("heading", level=1, name="Plan look, version 1").wait_for()
    page.get_by_role("link", name="Data health").click()
    page.get_by_role("row", name="late older than any report may be 4,321").wait_for()


def test_the_keyboard_reaches_the_content_and_what_figures_mean(open_page, address):
    page = open_page(f"{address}{THEME}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    sentence = page.get_by_text("It does not cover devices that are silent").first
    assert not sentence.is_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#metric-window summary')"):
            break
    page.keyboard.press("Enter")
    sentence.wait_for()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_pages_have_no_violation_of_wcag_that_axe_finds(open_page, address):
    script = axe()
    if script is None:
        pytest.skip("axe-core: make browser")
    # The page's policy allows no script of another.
    page = open_page(address, bypass_csp=True)

    for path in (*PAGES, f"{THEME}?segment=os", f"{THEME}?since=2026-01-01"):
        page.goto(f"{address}{path}")
        page.evaluate(script.read_text("utf-8"))
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = page.evaluate(f"axe.run({{runOnly: {{type: 'tag', values: {RULES}}}}})")
            assert found["violations"] == [], (path, scheme)
            # every draw: what axe looks for is on each of these pages, whatever their figures.
            assert len(found["passes"]) > 10, (path, scheme)


def test_favourites_are_kept_in_the_browser_and_linked_to_from_the_first_page(open_page, address):
    page = open_page(f"{address}/?find=theme")
    page.get_by_role("button", name="Favourite theme", pressed=False).click()
    page.goto(f"{address}/?find=speed")
    page.locator("#favourites").get_by_role("link", name="theme").click()
    page.get_by_role("heading", level=1, name="theme").wait_for()
    page.goto(address)
    page.get_by_role("button", name="Favourite theme", pressed=True).click()
    page.locator("#favourites").wait_for(state="hidden")


def test_no_page_is_wider_than_a_narrow_phone(open_page, address):
    page = open_page(address, viewport={"width": 320, "height": 640})
    for path in PAGES:
        page.goto(f"{address}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 320, path


def test_an_estimate_has_its_interval_beside_it_on_a_narrow_phone(open_page, address):
    page = open_page(address, viewport={"width": 320, "height": 640})
    for path in ("/", THEME):
        page.goto(f"{address}{path}")
        page.locator(".figures").get_by_text(" % to ").first.wait_for()
    # A chart is wider, and shows its newest end.
    place = page.locator(".scroll > *").first.bounding_box()
    # The same for every draw: the layout decides.
    assert place["x"] < 0 < place["x"] + place["width"] <= 320


def test_pages_and_charts_are_dark_on_a_dark_screen_and_light_on_paper(open_page, address):
    brightness = """() => [["body", "backgroundColor"], ["figure svg text", "fill"]].map(
        ([each, part]) => getComputedStyle(document.querySelector(each))[part]
            .match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"""
    page = open_page(f"{address}{THEME}", color_scheme="dark")
    paper, ink = page.evaluate(brightness)
    # every draw: colours of the style sheet.
    assert paper < 200 < 400 < ink
    for changed in ({"media": "print"}, {"media": "screen", "color_scheme": "light"}):
        page.emulate_media(**changed)
        paper, ink = page.evaluate(brightness)
        # every draw: likewise.
        assert paper > 600 > 400 > ink
        assert page.locator("form.chooser").first.is_visible() is (changed["media"] == "screen")


def test_without_a_script_windows_can_be_chosen(open_page, address):
    page = open_page(f"{address}{THEME}", java_script_enabled=False)
    page.get_by_label("Window", exact=True).select_option("9 Jan 2025")
    page.get_by_role("button", name="Show window").click()
    page.get_by_text("9 Jan 2025 to 16 Jan 2025").wait_for()


def test_a_page_shows_results_as_they_come_without_being_loaded_again(browser, open_page, tmp_path):
    """The first ones, and new ones: what a reader has opened stays open."""
    with serving(tmp_path) as address:
        # The console says that a page which waits was answered with status 503.
        waiting = browser.new_page()
        waiting.set_default_timeout(PATIENCE)
        waiting.goto(address)
        waiting.get_by_role("heading", level=1, name="No results yet").wait_for()
        write_results(tmp_path)
        waiting.get_by_role("link", name="theme").wait_for()
        waiting.close()
        page = open_page(f"{address}{THEME}")
        page.evaluate(NOTES)
        page.locator("summary").first.click()
        write_results(tmp_path, generation=2, windows=4)
        page.get_by_text("23 Jan 2025 to 30 Jan 2025").wait_for()
        assert "Updated: new results have been counted." in page.evaluate("window.said")
        assert page.locator("details[open]").count() == 1
        # It would ask a server that is not there any more, and say so.
        page.close()


def test_a_page_stays_where_the_server_fails(browser, address):
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}{THEME}")
    page.route("**/revision", lambda route: route.fulfill(json={"revision": "another"}))
    page.route(f"**{THEME}", lambda route: route.fulfill(status=500, body="<main>fault</main>"))
    revision = "document.querySelector('meta[name=sotto-revision]').content"
    for shown in ("", "one"):  # A page that waits for the first results has none.
        page.evaluate(f"{revision} = '{shown}'; say('')")
        page.get_by_text("New results cannot be shown yet").wait_for()
    page.route("**/revision", lambda route: route.fulfill(status=500, json={"title": "fault"}))
    page.get_by_text("The server does not answer").wait_for()
    page.get_by_role("heading", level=1, name="theme").wait_for()
    page.close()


def test_the_token_is_asked_for_once(browser, tmp_path):
    write_results(tmp_path)
    token = tmp_path / "token"
    token.write_text("a-token-of-this-very-test", "utf-8")
    options = ("--site", "results.example", "--token-file", str(token))
    with serving(tmp_path, *options) as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}{THEME}")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("Token").fill(token.read_text("utf-8"))
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="theme").click()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").wait_for()
        page.close()
