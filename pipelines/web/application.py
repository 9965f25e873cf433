"""The web page as an ASGI application: read-only, server-rendered, nothing fetched from elsewhere.

A page is made once for each revision of the results, and kept. Every request asks the database
whether the results have changed, so that no page is out of date.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.base import RequestResponseEndpoint
from starlette.routing import Match, Route

from pipelines.alerts.watch import AlertWatch
from pipelines.http.kept import Answer, BusyError, KeptAnswers, answered
from pipelines.http.problems import Faults, body_of, problem
from pipelines.http.server import NO_TELEMETRY
from pipelines.results.database import NoResultsError, UnreadableError
from pipelines.results.fields import milliseconds
from pipelines.results.notes import Notes
from pipelines.results.reader import ResultsReader
from pipelines.results.records import MetricKey
from pipelines.web import charts, rendering, views
from pipelines.web.access import SECURITY_HEADERS, Access, embedding
from pipelines.web.alerts import standing
from pipelines.web.boards import BoardsFile
from pipelines.web.pages import BOARD, METRIC, OVERVIEW, PAGES, PLAN, SitePage
from pipelines.web.snapshot import ResultsSnapshot
from pipelines.web.views import BoardView, MetricView, OverviewView, PageView, PlanView, RangeQuery
from pipelines.web.watching import JobWatch
from sotto.errors import SottoError

#: Header fields that the application reads.
HEADERS = frozenset(
    {b"authorization", b"content-length", b"content-type", b"cookie", b"host", b"if-none-match"}
    | {b"x-forwarded-proto"}
)
#: How many bytes of pages are kept, and the most bytes of a form.
_KEPT, _FORM_BYTES = 32 << 20, 4096
#: Seconds after which to ask again if the results cannot be read now (``Retry-After``).
_AGAIN = "5"
_TYPES = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: Paths that need no token.
_OPEN = ("/login", "/static/", "/healthz")

_logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Site:
    """The pages of some results.

    Parameters
    ----------
    reader : ResultsReader
    access : Access
    state : Path, optional
        The state directory, which has the plans and says how the last run went.
    watch : AlertWatch, optional
        Looks for alerts in the background.
    job_watch : JobWatch, optional
        Looks at the job in the background.
    boards : BoardsFile, optional
        Pages of several charts, and the origins that may embed charts.
    notes : Notes, optional
        The notes that are marked on axes of time.
    """

    reader: ResultsReader
    access: Access
    state: Path | None = None
    watch: AlertWatch | None = None
    job_watch: JobWatch | None = None
    boards: BoardsFile = field(default_factory=BoardsFile)
    notes: Notes | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot: ResultsSnapshot | None = None
        self._kept = KeptAnswers(_KEPT)

    def revision(self) -> str:
        """Return a text that changes with the results, plans, problems, alerts and notes."""
        stamps = []
        if self.state is not None:
            with suppress(OSError):
                folder = self.state / "plans"
                stamps = sorted((each.name, each.stat().st_mtime_ns) for each in folder.iterdir())
        moved = [each.id for each in standing(self.watch)]
        noted = None if self.notes is None else self.notes.stamp
        text = f"{self.reader.revision()} {stamps} {self.problems} {moved} {noted}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def problems(self) -> list[str]:
        """The job's problems, as far as they are known."""
        seen = None if self.job_watch is None else self.job_watch.last
        return [] if seen is None or self.access.public else seen.problems

    def snapshot(self) -> ResultsSnapshot:
        """Return the results as they are now."""
        revision = self.revision()
        with self._lock:
            if self._snapshot is None or self._snapshot.revision != revision:
                notes = [] if self.notes is None else self.notes.read()
                self._snapshot = ResultsSnapshot(
                    self.reader,
                    revision,
                    self.state,
                    self.watch,
                    self.job_watch,
                    notes,
                    self.boards.boards,
                )
            return self._snapshot

    def made(self, asked: AskedPage, *form: str, write: Callable[[PageView], bytes]) -> bytes:
        """Return the kept bytes of a page, or those that ``write`` makes of its view.

        ``form``: names what is written, if it is not the page itself but a chart of it. Raises
        BusyError if too many requests wait for bytes to be made; kept ones need no wait.
        """
        snapshot = self.snapshot()
        known = (asked.page.name, *asked.what, *form)

        def make() -> Answer:
            return Answer(write(asked.view(snapshot)))

        return self._kept.get(snapshot.revision, known, make, keep=asked.page.kept).body


class AskedPage(NamedTuple):
    """A page that is asked for, its view, and the parts of its address that tell it from others."""

    page: SitePage
    view: Callable[[ResultsSnapshot], PageView]
    what: tuple[object, ...] = ()


def application(
    site: Site, routers: Sequence[APIRouter] = (), warn: Callable[[str], None] = _logger.warning
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    site : Site
    routers : sequence of APIRouter
        Further routes, such as the HTTP interface, under the same rules of access.
    warn : callable
        Called once for each place in the code at which an unexpected error was raised.
    """
    access, links = site.access, rendering.ServedLinks()
    faults = Faults(warn, "web page")

    def page_of(page: SitePage) -> Callable[[Request], AskedPage]:
        def asked(request: Request) -> AskedPage:
            if access.public and not page.public:
                raise HTTPException(404)
            return AskedPage(page, lambda snapshot: PageView(snapshot, links, access.public))

        return asked

    def overview(request: Request) -> AskedPage:
        find = request.query_params.get("find", "").strip()[:80]
        part = request.query_params.get("part", "1")
        at = int(part) if re.fullmatch("[1-9][0-9]{0,3}", part) else 1
        view = partial(OverviewView, links=links, public=access.public, find=find, part=at)
        return AskedPage(OVERVIEW, view, (find, at))

    def board(request: Request) -> AskedPage:
        name = request.path_params["board"]
        found = next((each for each in site.boards.boards if each.name == name), None)
        if found is None:
            raise HTTPException(404, "There is no such board.")
        view = partial(BoardView, links=links, public=access.public, board=found)
        return AskedPage(BOARD, view, (name,))

    def metric(request: Request) -> AskedPage:
        key, asked = _key(request), request.query_params.get("window")
        query = RangeQuery.of(request.query_params, request.query_params.getlist("item"))

        def view(snapshot: ResultsSnapshot) -> PageView:
            windows = snapshot.windows(key)
            if not windows:
                raise HTTPException(404, "There is no such metric, or it has no reports yet.")
            shown = views.newest(windows)
            if asked is not None:
                same = [each for each in windows if str(milliseconds(each.window_start)) == asked]
                if not same:
                    raise HTTPException(404, "The metric has no such window.")
                shown = same[0]
            return MetricView(snapshot, links, access.public, key=key, shown=shown, query=query)

        return AskedPage(METRIC, view, (key, asked, query))

    def plan(request: Request) -> AskedPage:
        wanted = tuple(request.path_params[name] for name in ("collector", "plan", "version"))

        def view(snapshot: ResultsSnapshot) -> PageView:
            for each in snapshot.plans:
                if (each.collector, each.plan, str(each.version)) == wanted:
                    return PlanView(snapshot, links, access.public, plan=each)
            raise HTTPException(404, "There is no such plan here.")

        return AskedPage(PLAN, view, wanted)

    def routes(path: str, asked_by: Callable[[Request], AskedPage], name: str) -> list[Route]:
        """Return the routes of a page and of its charts."""

        def shown(request: Request) -> Response:
            asked = asked_by(request)

            def write(view: PageView) -> bytes:
                made = rendering.make(asked.page, replace(view, draws=False))
                return rendering.served_page(made, leave=access.token is not None).encode()

            return answered(request, site.made(asked, write=write), "text/html")

        def charted(request: Request) -> Response:
            asked = asked_by(request)
            chart, form = request.path_params["chart"], request.path_params["form"]
            embeds = form == "html" and site.boards.embed
            if form not in charts.FORMS and not embeds:
                raise HTTPException(404)

            def write(view: PageView) -> bytes:
                found = rendering.chart_of(asked.page, view, chart)
                if found is None:
                    raise HTTPException(404, "The page has no such chart.")
                return rendering.embedded(found).encode() if embeds else found.file(form)

            body = site.made(asked, chart, form, write=write)
            answer = answered(request, body, charts.FORMS.get(form, "text/html"))
            if embeds:
                answer.headers["content-security-policy"] = embedding(site.boards.embed)
            return answer

        return [
            Route(path, shown, name=name),
            Route(f"{path.rstrip('/')}/charts/{{chart}}.{{form}}", charted, name=f"{name} chart"),
        ]

    def revision(request: Request) -> Response:
        found = ""
        with suppress(NoResultsError):
            found = site.revision()
        body = json.dumps({"revision": found}).encode()
        return answered(request, body, "application/json", f'"{found}"')

    def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _TYPES:
            raise HTTPException(404)
        headers = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(rendering.static(name), 200, headers, _TYPES[name])

    async def login(request: Request) -> Response:
        if access.token is None or request.method != "POST":
            return Response(status_code=303, headers={"location": "/"})
        form = parse_qs((await body_of(request, _FORM_BYTES)).decode("utf-8", "replace"))
        if not access.is_token(form.get("token", [""])[0]):
            return _login(
                bad="This is not the token. It is in the file that was given with "
                "--token-file, or was printed when the server started."
            )
        headers = {"location": "/", "set-cookie": access.sign_in(request.headers)}
        return Response(status_code=303, headers=headers)

    def logout(request: Request) -> Response:
        headers = {"location": "/", "set-cookie": access.sign_out(request.headers)}
        return Response(status_code=303, headers=headers)

    app = FastAPI(
        title="Sotto",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
        routes=[
            *routes("/", overview, OVERVIEW.name),
            *(
                route
                for each in PAGES
                if each is not OVERVIEW
                for route in routes(f"/{each.name}", page_of(each), each.name)
            ),
            *routes("/metrics/{collector}/{plan}/{version}/{metric}", metric, METRIC.name),
            *routes("/plans/{collector}/{plan}/{version}", plan, PLAN.name),
            *routes("/boards/{board}", board, BOARD.name),
            Route("/revision", revision),
            Route("/static/{digest}/{name}", file),
            Route("/healthz", lambda _: Response("ok", media_type="text/plain")),
            Route("/login", login, methods=["GET", "POST"]),
            Route("/logout", logout, methods=["POST"]),
        ],
    )
    for router in routers:
        app.include_router(router)

    @app.exception_handler(HTTPException)
    async def _refusal(request: Request, error: HTTPException) -> Response:
        text = "" if error.detail == "Not Found" else str(error.detail)
        answer = _notice(request, error.status_code, "Not here", text or "There is no such page.")
        answer.headers.update(error.headers or {})
        if error.status_code == 405:
            # The framework names the methods of one route only, and a path may have several.
            asked = ((each, {**request.scope, "method": each}) for each in ("GET", "HEAD", "POST"))
            known = [
                method
                for method, scope in asked
                if any(each.matches(scope)[0] is Match.FULL for each in app.routes)
            ]
            answer.headers["allow"] = ", ".join(known)
        return answer

    @app.exception_handler(SottoError)
    @app.exception_handler(OSError)
    async def _unreadable(request: Request, error: SottoError | OSError) -> Response:
        return await run_in_threadpool(_without_results, request, error, site)

    @app.exception_handler(Exception)
    async def _fault(request: Request, error: Exception) -> Response:
        where = faults.note(error)
        answer = _notice(request, 500, "An error", f"The page could not be made ({where}).")
        # The middleware, which sets these headers, does not see this answer.
        answer.headers.update(SECURITY_HEADERS)
        return answer

    @app.middleware("http")
    async def _guard(request: Request, call: RequestResponseEndpoint) -> Response:
        answer = _refused(access, request) or await call(request)
        for name, value in SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    return app


def _refused(access: Access, request: Request) -> Response | None:
    """Return the answer to a request under another name or without the token, else None."""
    if not access.knows_host(request.headers):
        text = (
            "This server is asked for under a name that is not its own. Behind a proxy, give "
            "the public name with --site."
        )
        return _answer(421, text)
    # ``request.url.path`` depends on the header Host, which may be anything.
    path = request.scope["path"]
    if path.startswith(_OPEN) or access.admits(request.headers):
        return None
    if _is_for_programs(path):
        return _answer(401, "a token is needed: Authorization: Bearer TOKEN")
    return _login()


def _is_for_programs(path: str) -> bool:
    return path == "/revision" or path.startswith("/api/")


def _answer(status: int, text: str) -> Response:
    asks = {"www-authenticate": "Bearer"} if status == 401 else {}
    return problem(status, text, {"cache-control": "no-store", **asks})


def _login(bad: str = "") -> Response:
    html = rendering.notice(
        "Sign in", ["These results are for those who have the token."], login=True, bad=bad
    )
    headers = {"cache-control": "no-store", "www-authenticate": "Bearer"}
    return Response(html, 401, headers, "text/html")


def _notice(
    request: Request,
    status: int,
    title: str,
    text: str,
    problems: Sequence[str] = (),
    waiting: bool = False,
) -> Response:
    if _is_for_programs(request.url.path):
        return _answer(status, text)
    headers = {"cache-control": "no-store"} | ({"retry-after": _AGAIN} if waiting else {})
    html = rendering.notice(title, [text], problems=problems, waiting=waiting)
    return Response(html, status, headers, "text/html")


def _without_results(request: Request, error: SottoError | OSError, site: Site) -> Response:
    """Return the page that says why there are no results to show."""
    shown = "" if site.access.public else f" ({error})"
    if isinstance(error, NoResultsError):
        text = (
            f"The job has not written any results yet{shown}. This page shows them as soon as it "
            "has: `sotto aggregate`, or `sotto sink` of a streaming job, writes them."
        )
        return _notice(request, 503, "No results yet", text, site.problems, waiting=True)
    if isinstance(error, BusyError | UnreadableError):
        text = f"The results cannot be read just now{shown}. This page tries again."
        if isinstance(error, BusyError):
            text = "Many pages are asked for just now. This page tries again."
        return _notice(request, 503, "Not now", text, site.problems, waiting=True)
    text = f"The results cannot be read{shown or '; the owner can see why'}."
    return _notice(request, 503, "The results cannot be read", text)


def _key(request: Request) -> MetricKey:
    given: Mapping[str, str] = request.path_params
    version = given["version"]
    # Other spellings of the number are refused, so that a page has one address.
    if not re.fullmatch("0|[1-9][0-9]{0,9}", version):
        raise HTTPException(404)
    return MetricKey(given["collector"], given["plan"], int(version), given["metric"])
