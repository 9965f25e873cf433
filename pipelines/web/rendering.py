"""Makes HTML of pages: one at a time for a server, or all of them in one file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from pipelines.results import printed
from pipelines.results.fields import milliseconds
from pipelines.results.reader import ResultsReader
from pipelines.results.records import MetricKey, Window
from pipelines.web import charts, formats, views
from pipelines.web.pages import METRIC, OVERVIEW, PAGES, PLAN, SitePage
from pipelines.web.snapshot import ResultsSnapshot
from pipelines.web.views import BoardView, MetricView, PageView, PlanView, RangeQuery
from sotto.disclosure import facts
from sotto.plan.compiled import CompiledPlan
from sotto.plan.files import checked_output, write_output

_FOLDER = Path(__file__).parent
#: The most rows of an answer of the HTTP interface.
_ROWS = 10_000
#: Names of these modules that templates can call: filters of the first, functions of both.
_FILTERS = ("percent", "number", "day", "moment", "epsilon", "micro", "clock", "age", "size")
_FUNCTIONS = {
    formats: "quantity difference interval unit_apart frame",
    printed: "who_answered",
    views: "ends_of forged_of name_of figure_of",
}
TEMPLATES = _FOLDER / "templates"
STATIC = _FOLDER / "static"


@cache
def static(name: str) -> bytes:
    """Return a file that all pages use: ``style.css``, ``live.js`` or ``icon.svg``."""
    return (STATIC / name).read_bytes()


@cache
def static_address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{hashlib.sha256(static(name)).hexdigest()[:12]}/{name}"


@cache
def environment() -> jinja2.Environment:
    """Return the templates; every value that they are given is escaped, except charts."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update((name, getattr(formats, name)) for name in _FILTERS)
    for module, names in _FUNCTIONS.items():
        made.globals.update((name, getattr(module, name)) for name in names.split())
    made.globals.update(facts=facts, static=static_address)
    return made


def _path(*parts: object) -> str:
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


class ServedLinks:
    """Addresses of a server's pages."""

    def page(self, name: str) -> str | None:
        return "/" if name == OVERVIEW.name else _path(name)

    def board(self, name: str) -> str | None:
        return _path("boards", name)

    def metric(
        self, key: MetricKey, window: Window | None = None, query: RangeQuery | None = None
    ) -> str | None:
        asked = [] if window is None else [("window", str(milliseconds(window.window_start)))]
        asked += [] if query is None else query.parameters
        path = _path("metrics", *key)
        return f"{path}?{urlencode(asked)}" if asked else path

    def chart(self, page: str | None, name: str, form: str) -> str | None:
        path, mark, asked = (page or "").partition("?")
        return f"{path}/charts/{name}.{form}{mark}{asked}"

    def plan(self, plan: CompiledPlan) -> str | None:
        return _path("plans", plan.collector, plan.plan, plan.version)

    def data(self, window: Window, form: str) -> str | None:
        """Return where the HTTP interface has the estimates of a window."""
        asked = {
            **window.key._asdict(),
            "since": window.window_start.isoformat(),
            "until": window.window_end.isoformat(),
            "limit": _ROWS,
            "format": form,
        }
        return f"/api/v1/estimates?{urlencode(asked)}"


class Anchors(views.Links):
    """Places in one file, which shows one window of every metric."""

    def page(self, name: str) -> str | None:
        return f"#{name}"

    def metric(
        self, key: MetricKey, window: Window | None = None, query: RangeQuery | None = None
    ) -> str | None:
        return None if window is not None else f"#{_place('metric', *key)}"

    def plan(self, plan: CompiledPlan) -> str | None:
        return f"#{_place('plan', plan.collector, plan.plan, plan.version)}"


def _place(*parts: object) -> str:
    return "-".join(quote(str(part), safe="") for part in parts)


@dataclass(frozen=True)
class Made:
    """A page that is made: its place in one file, heading, and sections as HTML."""

    place: str
    title: str
    lede: str
    page: SitePage
    view: PageView
    sections: Sequence[tuple[str, str, Markup]]


def make(page: SitePage, view: PageView, place: str | None = None) -> Made:
    """Return a page with the sections that have something to show.

    The first chart is in the page itself, unless it has many windows. The browser fetches the other
    charts by their addresses, if they have any (a static file's have none).
    """
    place, files = place or page.name, _files_of(page, view)
    sections, drawn = [], False
    for section in page.sections:
        if view.public and not section.public:
            continue
        context = section.build(view)
        if context is None:
            continue
        for at, each in enumerate(_charts_in(context), 1):
            each.name = f"{section.name}-{at}"
            if (drawn or each.many) and (address := dict(files(each)).get("SVG")):
                # Browsers keep what an address shows, so it changes with the revision.
                mark = "&" if "?" in address else "?"
                each.later = f"{address}{mark}revision={view.snapshot.revision}"
            drawn = True
        template = environment().get_template(f"{section.name}.html.j2")
        text = template.render(view=view, place=f"{place}-{section.name}", files=files, **context)
        sections.append((f"{place}-{section.name}", section.title, Markup(text)))
    title, lede = page.title, ""
    if isinstance(view, MetricView):
        title, lede = view.key.metric, view.title if view.title != view.key.metric else ""
    elif isinstance(view, PlanView):
        title = f"Plan {view.plan.plan}, version {view.plan.version}"
        lede = view.plan.description or ""
    elif isinstance(view, BoardView):
        title = view.board.title
    return Made(place, title, lede, page, view, sections)


def chart_of(page: SitePage, view: PageView, name: str) -> charts.Chart | None:
    """Return a chart of a page by its name; None if it has no such chart."""
    of, _, number = name.rpartition("-")
    for section in page.sections:
        if section.name == of and (section.public or not view.public):
            found = list(_charts_in(section.build(view) or {}))
            return found[int(number) - 1] if number in map(str, range(1, len(found) + 1)) else None
    return None


def _charts_in(shown: object) -> Iterator[charts.Chart]:
    """Yield the charts among a template's variables, in order."""
    if isinstance(shown, charts.Chart):
        yield shown
    elif isinstance(shown, Mapping):
        for each in shown.values():
            yield from _charts_in(each)
    elif isinstance(shown, list | tuple):
        for each in shown:
            yield from _charts_in(each)


def _files_of(page: SitePage, view: PageView) -> Callable[[charts.Chart], list[tuple[str, str]]]:
    """Return a function that returns kind and address of a chart's files."""
    at = view.address() if isinstance(view, MetricView) else view.links.page(page.name)
    if isinstance(view, BoardView):
        at = view.links.board(view.board.name)

    def files(chart: charts.Chart) -> list[tuple[str, str]]:
        found = [(form.upper(), view.links.chart(at, chart.name, form)) for form in charts.FORMS]
        return [(kind, address) for kind, address in found if address is not None]

    return files


def navigation(view: PageView) -> list[tuple[str, str | None]]:
    """Return titles and addresses of the pages that the navigation shows."""
    shown = (page for page in PAGES if page.is_shown(view))
    boards = [
        (each.title, address)
        for each in view.snapshot.boards
        if (address := view.links.board(each.name)) is not None
    ]
    pages = [(page.title, view.links.page(page.name)) for page in shown]
    return [*pages[:1], *boards, *pages[1:]]


def served_page(made: Made, *, leave: bool) -> str:
    """Return the HTML of a page of a server; ``leave`` is whether a session can be ended."""
    template = environment().get_template("page.html.j2")
    return template.render(
        made=made, view=made.view, nav=navigation(made.view), leave=leave, waiting=False
    )


def embedded(chart: charts.Chart) -> str:
    """Return a page that has one chart alone, to be shown inside of another page."""
    return environment().get_template("embedded.html.j2").render(chart=chart)


def notice(
    title: str,
    texts: Iterable[str],
    *,
    problems: Sequence[str] = (),
    waiting: bool = False,
    login: bool = False,
    bad: str = "",
) -> str:
    """Return a page without results: why there are none, or the form that asks for the token.

    ``problems``: what is wrong with the job.
    """
    template = environment().get_template("notice.html.j2")
    return template.render(
        title=title, texts=list(texts), problems=problems, waiting=waiting, login=login, bad=bad
    )


def static_file(snapshot: ResultsSnapshot, *, public: bool = False) -> str:
    """Return all pages in one HTML file, which fetches nothing and has no script.

    Every metric is shown in the newest window that is not withheld.
    """
    links = Anchors()
    view = PageView(snapshot, links, public)
    parts = [make(page, view) for page in PAGES if page.is_shown(view)]
    for key, windows in snapshot.newest.items():
        of_metric = MetricView(snapshot, links, public, key=key, shown=views.newest(windows))
        parts.append(make(METRIC, of_metric, _place("metric", *key)))
    for plan in snapshot.plans:
        of_plan = PlanView(snapshot, links, public, plan=plan)
        place = _place("plan", plan.collector, plan.plan, plan.version)
        parts.append(make(PLAN, of_plan, place))
    style = static("style.css").decode()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            parts=parts, view=view, nav=navigation(view), style=Markup(style), style_digest=digest
        )
    )


def write_static_file(
    reader: ResultsReader, path: Path, state: Path | None = None, *, public: bool = False
) -> None:
    """Write all pages to one HTML file, which is replaced only when it is whole.

    ``state``: the state directory, if there is one. Raises AggregationError if there are no
    results, or they cannot be read, ParameterError if ``path`` cannot be a file, and OSError if it
    cannot be written.
    """
    checked_output(path)
    text = static_file(ResultsSnapshot(reader, reader.revision(), state), public=public)
    write_output(path, text.encode())
