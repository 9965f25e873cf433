"""The HTTP interface to results, ``/api/v1``: every view, the plans and the health of the jobs.

Answers are JSON, CSV, Parquet or Arrow, as ``?format=`` says. Rows come in pages, in the
order of their keys: a page has a link to the next one. An answer has an ``ETag`` that changes with
the results, so that a client that asks again with ``If-None-Match`` gets 304 at the cost of one
small query. A refusal is a problem document (RFC 9457). The only change that a client can make is
to add a note on the axis of time.
"""

from __future__ import annotations

import base64
import io
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from pipelines.http.kept import Answer, BusyError, KeptAnswers, answered, has_already
from pipelines.http.problems import body_of, problem
from pipelines.results import openapi
from pipelines.results.database import NoResultsError, ResultsError, UnknownNameError
from pipelines.results.documents import StorableText
from pipelines.results.encode import WRITERS, objects, time_text
from pipelines.results.fields import milliseconds, moment
from pipelines.results.notes import NOTE_BYTES, Notes, TimeNote
from pipelines.results.openapi import MEDIA_TYPES, Answers, Format, answers, page_of, refused
from pipelines.results.range_windows import WindowRange
from pipelines.results.reader import Chosen, Page, ResultsReader
from pipelines.results.records import Health
from pipelines.results.views import (
    COMPARISONS,
    EFFECTS,
    RANGES,
    RETENTION,
    VIEW_ESTIMATES,
    VIEWS,
    RowSet,
    View,
    rows_of,
)
from pipelines.storage.yaml_files import problems_of
from sotto.errors import AggregationError, ParameterError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.durations import parse_time

_logger = logging.getLogger(__name__)

#: Rows of a page, by default and at most.
ROWS, MOST_ROWS = 1000, 10_000
#: Bytes of answers that are kept while the results do not change, of all views together.
_KEPT = 32 << 20
#: Seconds after which a client may try again (``Retry-After``).
_LATER = 5


class _Route(APIRoute):
    """A route whose errors are problem documents."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                _check_once(request)
                return await handle(request)
            except HTTPException as error:
                return _refusal(error.status_code, error.detail, **(error.headers or {}))
            except RequestValidationError as error:
                return _refusal(422, _words(error))
            except NoResultsError:
                return _unavailable("there are no results yet")
            except BusyError as error:
                return _unavailable(str(error))
            except (ResultsError, AggregationError) as error:
                # The error may name files and servers, which not every client may know.
                _logger.warning("%s", error)
                return _unavailable("the results cannot be read now")

        return handled


def _refusal(status: int, title: str, **headers: str) -> Response:
    return problem(status, title, {"cache-control": "no-store", **headers})


def _unavailable(title: str) -> Response:
    return _refusal(503, title, **{"retry-after": str(_LATER)})


def _words(error: RequestValidationError) -> str:
    first = error.errors()[0]
    name = next((str(part) for part in first["loc"] if part != "query"), "the query")
    if first["type"] == "extra_forbidden":
        return f"there is no parameter {name}"
    return f"{name}: {first['msg'].removeprefix('Value error, ')}"


def _check_once(request: Request) -> None:
    """Refuse a parameter that is given twice, since FastAPI would use its last value alone."""
    for name in request.query_params:
        if name != "item" and len(request.query_params.getlist(name)) > 1:
            raise HTTPException(422, f"{name}: it is given more than once")


def _time(text: object) -> datetime:
    if not isinstance(text, str) or text.strip().lstrip("-").isdecimal():
        raise ValueError("a time must be such as 2013-06-01 or 2013-06-01T12:00Z")
    return moment(parse_time(text))


def _decoded(cursor: object) -> object:
    """Return the key that a cursor encodes; the reader checks that it is a key of the view."""
    try:
        return _KEY.validate_json(base64.urlsafe_b64decode(f"{cursor}=="))
    except ValueError:
        raise ValueError("it is not the `next` of a page") from None


_Whole: TypeAlias = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
_KEY = TypeAdapter(tuple[StorableText | _Whole, ...])
_Time: TypeAlias = Annotated[datetime, BeforeValidator(_time, json_schema_input_type=str)]
_Cursor: TypeAlias = Annotated[
    tuple[Any, ...], BeforeValidator(_decoded, json_schema_input_type=str)
]


class _Nothing(BaseModel):
    """No parameters: any is refused. Queries with parameters are derived from this class."""

    model_config = ConfigDict(extra="forbid")


class _RowsQuery(_Nothing):
    """The parameters of every path that returns rows."""

    format: Format = Field("json", description="of the answer", examples=["csv"])
    collector: StorableText | None = Field(None, description="only of this collector")

    @property
    def wanted(self) -> Any:
        """The rows that are asked for, as the reader takes them."""
        names = set(Chosen.__dataclass_fields__) & set(type(self).model_fields)
        return Chosen(**{name: getattr(self, name) for name in names})


class _MetricQuery(_RowsQuery):
    """Parameters of rows of metrics, and of experiments."""

    plan: StorableText | None = Field(None, description="only of this plan")
    version: int | None = Field(None, ge=0, lt=2**31, description="only of this version")
    metric: StorableText | None = Field(
        None, description="only of this metric", examples=["carrier"]
    )


class _RangeQuery(_MetricQuery):
    """The parameters of a range: windows that are put together to one estimate."""

    metric: StorableText = Field(description="of this metric", examples=["carrier"])
    since: _Time | None = Field(
        None, description="only windows that begin then or later", examples=["2013-06-01"]
    )
    until: _Time | None = Field(
        None, description="only windows that end then or earlier", examples=["2013-07-01T00:00Z"]
    )
    segment: StorableText = Field("", description="of this segment; empty for all reports together")
    by: StorableText | None = Field(
        None, description="of each segment by these attributes", examples=["os,app_version"]
    )
    under: float | None = Field(None, ge=0, le=1, description="if that share is forged")

    @property
    def wanted(self) -> WindowRange:
        return WindowRange(**{name: getattr(self, name) for name in WindowRange.__match_args__})


class _ComparisonQuery(_RangeQuery):
    against: StorableText = Field(
        description="another range such as 2013-06-01..2013-07-01, `previous`, a segment such as "
        "os=linux, or `all`",
        examples=["previous"],
    )


class _SegmentQuery(_MetricQuery):
    """Parameters of rows by segment: those of retention and of windows."""

    segment: StorableText | None = Field(
        None, description="only of this segment; empty for all reports together"
    )


class _ViewQuery(_RowsQuery):
    """Parameters of every view."""

    limit: int = Field(ROWS, ge=1, le=MOST_ROWS, description="rows of a page")
    cursor: _Cursor | None = Field(None, description="`next` of the page before")


class _OfMetrics(_ViewQuery, _MetricQuery): ...


class _OfWindows(_OfMetrics, _SegmentQuery):
    since: _Time | None = Field(
        None, description="only windows that end after this time", examples=["2013-06-01"]
    )
    until: _Time | None = Field(
        None, description="only windows that begin before it", examples=["2013-07-01T00:00Z"]
    )
    newest: bool = Field(False, description="only the newest of these windows of each metric")


class _OfEstimates(_OfWindows):
    items: list[StorableText] | None = Field(
        None, alias="item", description="only of these items", examples=[["DL"]]
    )


class _OfKinds(_OfEstimates):
    kind: StorableText | None = Field(None, description="only of this kind", examples=["share"])


#: The parameters of views, by column: a view takes those of the last column here that it has.
_QUERIES = {
    "collector": _ViewQuery,
    "metric": _OfMetrics,
    "window_start": _OfWindows,
    "item": _OfEstimates,
    "kind": _OfKinds,
}


def create_router(
    reader: ResultsReader, *, public: bool = False, notes: Notes | None = None
) -> APIRouter:
    """Return the routes of ``/api/v1``.

    Parameters
    ----------
    reader : ResultsReader
    public : bool
        Whether to leave out health, alarms, budgets and rejections, which are for those who
        operate the collection.
    notes : Notes, optional
        The notes on the axis of time. With ``public`` they can be read, and none added.
    """
    router = APIRouter(prefix="/api/v1", route_class=_Route, tags=["results"])
    add = partial(_add, router, reader, KeptAnswers(_KEPT))
    for view in VIEWS:
        if not (public and view.private):
            add(view, [query for name, query in _QUERIES.items() if view.has(name)][-1])
    for kind, query in (
        (RANGES, _RangeQuery),
        (COMPARISONS, _ComparisonQuery),
        (EFFECTS, _MetricQuery),
        (RETENTION, _SegmentQuery),
    ):
        add(kind, query)

    def plans(request: Request, given: Annotated[_Nothing, Query()]) -> Response:
        return _document(request, "plans", [_plan(each) for each in reader.plans()])

    known = "the plans, as far as they are known here"
    _add_route(router, "plans", plans, known, answers("plans", openapi.PLAN))
    if notes is not None:
        _add_notes(router, notes, public=public)
    if not public:

        def health(request: Request, given: Annotated[_Nothing, Query()]) -> Response:
            return _document(request, "collectors", [_health(each) for each in reader.health()])

        how = "by collector: how far its results are, and how its job is"
        _add_route(router, "health", health, how, answers("collectors", openapi.HEALTH))

    return router


def _add_notes(router: APIRouter, notes: Notes, *, public: bool) -> None:
    """Add the route that reads notes and, unless ``public``, the one that adds a note."""

    def read(request: Request, given: Annotated[_Nothing, Query()]) -> Response:
        return _document(request, "notes", [each.model_dump(mode="json") for each in notes.read()])

    schema = TimeNote.model_json_schema()
    known = answers("notes", schema) | refused(422)
    _add_route(router, "notes", read, "notes on the axis of time, by time", known)
    if public:
        return
    content = {"application/json": {"schema": schema}}
    added: Answers = {201: {"description": "the note", "content": content}, 503: known[503]}

    @router.post(
        "/notes",
        operation_id="add_note",
        summary="add a note",
        status_code=201,
        responses=added | refused(408, 409, 413, 415, 422),
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def add(request: Request) -> Response:
        # Browsers send other content types from another site's page without a CORS preflight.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "a note must be sent as application/json")
        try:
            note = TimeNote.model_validate_json(await body_of(request, NOTE_BYTES))
            await run_in_threadpool(notes.add, note)
        except ValidationError as error:
            raise HTTPException(422, "; ".join(problems_of(error, whole="the note"))) from None
        except ParameterError as error:
            raise HTTPException(409, str(error)) from None
        return Response(note.model_dump_json(), 201, media_type="application/json")


def _add(
    router: APIRouter, reader: ResultsReader, kept: KeptAnswers, kind: RowSet, query: Any
) -> None:
    """Add the route of a view, or of rows that are computed when they are asked for."""

    def rows(request: Request, given: Any) -> Response:
        def make(form: str) -> Answer:
            try:
                page = _found(reader, kind, given)
                if not page.rows and isinstance(given.wanted, Chosen):
                    view = kind if isinstance(kind, View) else VIEW_ESTIMATES
                    reader.check_known(view, given.wanted)
            except ParameterError as error:
                status = 404 if isinstance(error, UnknownNameError) else 422
                raise HTTPException(status, str(error)) from None
            following = None if page.next is None else _encoded(page.next)
            return Answer(_body(kind, page, form, following), following)

        asked = (kind.name, given.model_dump_json(exclude={"format"}))
        return _answered(request, given.format, reader, kept, asked, make)

    rows.__annotations__["given"] = Annotated[query, Query()]
    _add_route(router, kind.name, rows, kind.comment, page_of(kind))


def _add_route(
    router: APIRouter, name: str, answer: Callable[..., Response], summary: str, responses: Answers
) -> None:
    path = f"/{name}"
    router.add_api_route(
        path,
        answer,
        operation_id=name,
        summary=summary,
        responses=responses,
        response_class=Response,
    )
    # The server answers HEAD as GET, and leaves out the body.
    router.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)


def _found(reader: ResultsReader, kind: RowSet, given: Any) -> Page:
    wanted = given.wanted
    if isinstance(kind, View):
        return reader.page(kind, wanted, after=given.cursor, limit=given.limit)
    if kind is COMPARISONS:
        return Page(rows_of(kind, reader.compared(wanted, wanted.against(given.against))), None)
    read: dict[RowSet, Any]
    read = {EFFECTS: reader.effects, RETENTION: reader.retention, RANGES: reader.range_estimates}
    return Page(rows_of(kind, read[kind](wanted)), None)


def _answered(
    request: Request,
    kind: Format,
    reader: ResultsReader,
    kept: KeptAnswers,
    asked: tuple[object, ...],
    make: Callable[[str], Answer],
) -> Response:
    """Return the answer in a format: 304 if the client has it, else kept bytes or new ones."""
    revision = reader.revision()
    etag = f'"{revision}-{kind}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if has_already(request, etag):
        return Response(status_code=304, headers=headers)
    body, following = kept.get(revision, (*asked, kind), lambda: make(kind))
    if following is not None:
        again: dict[str, object] = {**request.query_params, "cursor": following}
        if items := request.query_params.getlist("item"):
            again["item"] = items
        headers["link"] = f'<?{urlencode(again, doseq=True)}>; rel="next"'
    return Response(body, 200, headers, MEDIA_TYPES[kind])


def _body(view: RowSet, page: Page, kind: str, following: str | None) -> bytes:
    if kind == "json":
        found = {view.name: list(objects(view, page.rows)), "next": following}
        return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
    file = io.BytesIO()
    WRITERS[kind](view, [page.rows], file)
    return file.getvalue()


def _document(request: Request, name: str, found: list[Mapping[str, object]]) -> Response:
    body = json.dumps({name: found}, ensure_ascii=False, separators=(",", ":")).encode()
    return answered(request, body, MEDIA_TYPES["json"])


def _plan(plan: CompiledPlan) -> dict[str, object]:
    return {"fingerprint": plan.fingerprint_hex, **json.loads(plan.to_json())}


def _health(health: Health) -> dict[str, object]:
    return {
        "collector": health.collector,
        "job": health.job,
        "generation": health.generation,
        "clock": None if health.clock is None else time_text(milliseconds(health.clock)),
        **health.numbers,
        "offsets": health.offsets,
    }


def _encoded(key: tuple[str | int, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")
