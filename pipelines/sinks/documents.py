"""The documents of a topic of estimates: canonical JSON, one key each; the newest revision counts.

Aggregation runs and streaming jobs publish them, sinks read them; ``docs/formats.md`` describes
every field. A document is a function of what it is about, so publishing it twice changes nothing:
of each job and key, a consumer keeps the document with the highest revision.

Only what every database can store is accepted: whoever may write to a topic must not be able to
stop those who read it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from typing_extensions import TypedDict

from sotto.errors import FormatError

SCHEMA = 1

#: When a window was published: before its end by the log's clock, as the clock passed it, after.
Pane: TypeAlias = Literal["early", "on_time", "late"]
PANES: tuple[str, ...] = get_args(Pane)

Row: TypeAlias = Mapping[str, object]

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("no database takes NUL as text")
    return text


_Text: TypeAlias = Annotated[str, AfterValidator(_storable)]
_Int64: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Natural: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
_Small: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
_Rows: TypeAlias = dict[_Text, _Natural]


class Alarm(TypedDict):
    """A row of the table ``alarms``, without the columns of its window."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    kind: _Text
    statistic: float
    expected: float
    threshold: float
    p_value: float
    n: _Natural
    message: _Text


class Window(TypedDict):
    """A row of the table ``stored_windows``, without its revision."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    collector: _Text
    plan: _Text
    version: _Small
    metric: _Text
    window_start: _Int64
    window_end: _Int64
    type: _Text
    mechanism: _Text
    n: _Natural
    reports_by_level: list[_Natural]
    minimum_reports: _Natural
    withheld: _Text | None
    #: Release 0.4.0 wrote none.
    complete: NotRequired[bool]


class Segment(TypedDict):
    """What a row of the table ``stored_windows`` of a segment has of its own."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    segment: Annotated[_Text, Field(min_length=1)]
    n: _Natural
    reports_by_level: list[_Natural]
    withheld: _Text | None


class Estimate(TypedDict):
    """A row of the table ``stored_estimates``, without the columns of its window."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    #: Left out of rows of all reports.
    segment: NotRequired[_Text]
    kind: _Text
    item: _Text
    position: _Small
    value: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    display: float | None
    detection_floor: float | None
    p_value: float | None
    n: _Natural
    reports_by_level: list[_Natural]
    significant: bool | None
    confounded_with: list[_Text] | None
    unit: _Text | None
    method: _Text | None
    withheld: _Text | None
    reach: list[list[float]] | None


class Period(TypedDict):
    """A row of the table ``periods``."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    collector: _Text
    period_start: _Int64
    period_end: _Int64
    closed: bool
    pseudonyms: _Natural
    chains: _Natural
    accepted: _Natural
    observed: _Natural
    most_accepted: _Natural
    most_observed: _Natural
    over_budget: _Natural
    equivocation: _Natural


class Health(TypedDict):
    """The state of a job: what its reports came to, what it holds, and how far it has read."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]

    reports: _Int64 | None
    counted: _Int64 | None
    superseded: _Int64 | None
    duplicates: _Int64 | None
    revoked: _Int64 | None
    state_bytes: _Int64 | None
    chains: _Int64 | None
    pseudonyms: _Int64 | None
    clock: _Int64 | None
    offsets: _Rows | None


#: The columns that name a window, and those that its estimates repeat.
WINDOW_KEY = ("collector", "plan", "version", "metric", "window_start")
_REPEATED = (*WINDOW_KEY, "window_end")


class Document(BaseModel):
    """What all documents have."""

    model_config = ConfigDict(frozen=True, **_STRICT)
    key_names: ClassVar[tuple[str, ...]] = ("collector",)

    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    job: Annotated[_Text, Field(min_length=1)]  #: random name of the deployment that made it
    #: At least 1; higher than that of every earlier document of the job with this key.
    revision: Annotated[int, Field(ge=1, lt=2**63)]

    @property
    def key(self) -> bytes:
        kind = getattr(self, "kind")  # noqa: B009
        about = self._about
        return _canonical([kind, *(about[name] for name in self.key_names)])

    @property
    def collector_name(self) -> str:
        return str(self._about["collector"])

    @property
    def _about(self) -> Mapping[str, Any]:
        return vars(self)


class WindowDocument(Document):
    """A window and its estimates; no estimates once all its reports are taken back."""

    key_names = WINDOW_KEY

    kind: Literal["window"]
    pane: Pane
    window: Window
    alarms: tuple[Alarm, ...]
    estimates: tuple[Estimate, ...]
    #: Left out where the plan has none.
    segments: tuple[Segment, ...] = ()

    @model_validator(mode="after")
    def _completed(self) -> WindowDocument:
        self.window.setdefault("complete", True)
        for estimate in self.estimates:
            estimate.setdefault("segment", "")
        if len({each["kind"] for each in self.alarms}) < len(self.alarms):
            raise ValueError("two alarms are of the same kind")
        names = {(each["segment"], each["kind"], each["item"]) for each in self.estimates}
        if len(names) < len(self.estimates):
            raise ValueError("two estimates are of the same kind, item and segment")
        known = {each["segment"] for each in self.segments}
        if len(known) < len(self.segments):
            raise ValueError("two segments have one name")
        if not {each["segment"] for each in self.estimates} <= {"", *known}:
            raise ValueError("an estimate is of a segment that the window does not have")
        return self

    @property
    def _about(self) -> Mapping[str, Any]:
        return self.window

    def rows(self) -> tuple[list[Row], list[Row]]:
        """Return rows of windows, that of all reports first, and of their estimates."""
        window: dict[str, object] = {**self.window, "segment": "", "revision": self.revision}
        repeated = {name: window[name] for name in (*_REPEATED, "revision", "complete")}
        total = {**window, "alarms": list(self.alarms)}
        windows: list[Row] = [total, *({**window, **each} for each in self.segments)]
        return windows, [{**repeated, **each} for each in self.estimates]


class PeriodDocument(Document):
    """The audit of a budget period."""

    key_names = ("collector", "period_start")

    kind: Literal["period"]
    period: Period

    @property
    def _about(self) -> Mapping[str, Any]:
        return self.period


class RejectsDocument(Document):
    """Numbers of reports by reason: all rejected, and those requeued since, None if not known."""

    kind: Literal["rejects"]
    collector: _Text
    rejects: _Rows
    requeued: _Rows | None


class HealthDocument(Document):
    """The state of a job."""

    kind: Literal["health"]
    collector: _Text
    health: Health


_DOCUMENT: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        WindowDocument | PeriodDocument | RejectsDocument | HealthDocument,
        Field(discriminator="kind"),
    ]
)
_FIELDS = {
    name
    for kind in (Window, Segment, Alarm, Estimate, Period, Health)
    for name in kind.__annotations__
} | {
    name
    for kind in (WindowDocument, PeriodDocument, RejectsDocument, HealthDocument)
    for name in kind.model_fields
}


def window_document(
    job: str,
    window: Row,
    estimates: Sequence[Row],
    revision: int,
    pane: str,
    segments: Sequence[Row] = (),
) -> tuple[bytes, bytes]:
    """Return key and value of a window's document.

    ``window``: a row of :func:`pipelines.aggregation.result_rows.rows_of_windows`; its ``revision``
    is not used. ``estimates``: of this window alone, empty if its reports were all taken back.
    ``pane``: one of :data:`PANES`. ``segments``: the window's rows of segments, if it has any.
    """
    of_segments = [{name: row[name] for name in Segment.__annotations__} for row in segments]
    return _packed(
        "window",
        job,
        revision,
        pane=pane,
        window={name: window.get(name) for name in Window.__annotations__},
        alarms=window.get("alarms", ()),
        estimates=[_estimate(row) for row in estimates],
        **({"segments": of_segments} if of_segments else {}),
    )


def _estimate(row: Row) -> dict[str, object]:
    found = {name: row.get(name) for name in Estimate.__annotations__}
    if not found["segment"]:
        del found["segment"]
    return found


def period_document(job: str, period: Row, revision: int) -> tuple[bytes, bytes]:
    """Return key and value of a document of a row of the table ``periods``."""
    about = {name: period.get(name) for name in Period.__annotations__}
    return _packed("period", job, revision, period=about)


def rejects_document(
    job: str,
    collector: str,
    rejects: Mapping[str, int],
    revision: int,
    requeued: Mapping[str, int] | None = None,
) -> tuple[bytes, bytes]:
    """Return key and value of a document of what was rejected, and requeued if that is known."""
    return _packed(
        "rejects", job, revision, collector=collector, rejects=rejects, requeued=requeued
    )


def health_document(job: str, collector: str, health: Row, revision: int) -> tuple[bytes, bytes]:
    """Return key and value of a document of a job's state; fields that are left out are null."""
    names = Health.__annotations__
    if unknown := sorted(set(health) - set(names)):
        raise FormatError(f"health has no field {unknown[0]!r}")
    about = {name: health.get(name) for name in names}
    return _packed("health", job, revision, collector=collector, health=about)


def parse(key: bytes | None, value: bytes | None) -> Document:
    """Return the document of a record.

    >>> key, value = rejects_document("j", "fleet.example", {"late": 3}, revision=7)
    >>> key
    b'["rejects","fleet.example"]'
    >>> parse(key, value).rejects
    {'late': 3}
    """
    document = _parsed(value or b"")
    if key != document.key:
        raise FormatError("the key is that of another document")
    return document


def _parsed(value: bytes) -> Document:
    try:
        document: Document = _DOCUMENT.validate_json(value)
    except ValidationError as error:
        raise FormatError(f"no document of schema {SCHEMA}: {_reason(error)}") from None
    return document


def _reason(error: ValidationError) -> str:
    """Return which field is invalid and why, without any of its content."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # Other parts of the path are from the document.
    path = ".".join(str(part) for part in first["loc"] if part in _FIELDS or isinstance(part, int))
    reason = first["msg"] if first["type"] == "value_error" else first["type"]
    return f"{path}: {reason}" if path else reason


def _packed(kind: str, job: str, revision: int, **more: object) -> tuple[bytes, bytes]:
    content = {"schema": SCHEMA, "kind": kind, "job": job, "revision": revision, **more}
    value = _canonical(_finite(content))
    return _parsed(value).key, value


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _finite(value: object) -> object:
    """Return a value that JSON has: null for what is not finite, lists for tuples."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value
