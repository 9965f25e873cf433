"""The documents of a topic of estimates: canonical JSON, one key each; the newest revision counts.

Aggregation runs and streaming jobs publish documents, sinks read them. There are four kinds: of a
window with its estimates, of a budget period, of rejected reports, and of a job's health. Their
objects have the fields of :mod:`pipelines.results.records`; ``docs/spec/formats.md`` describes
every field. Publishing a document twice changes nothing: for each job and key, a consumer keeps
the document with the highest revision.

:func:`parse` accepts only what every database can store: whoever may write to a topic must not be
able to stop those who read it.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NotRequired, TypeAlias, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
    with_config,
)
from typing_extensions import TypedDict

from pipelines.results import fields as results
from pipelines.results.fields import Kind, stored_fields
from pipelines.results.records import (
    Alarm,
    Budget,
    EstimateRecord,
    Health,
    JobNumbers,
    MetricKey,
    Rejection,
    Window,
)
from sotto.errors import FormatError

SCHEMA = 1

#: When a window was published. A run has ``early`` before the log's clock has reached the window's
#: end, ``on_time`` the first time after that, then ``late``. A streaming job takes the time at
#: which the window is complete in place of its end.
Pane: TypeAlias = Literal["early", "on_time", "late"]

Row: TypeAlias = Mapping[str, object]

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


#: Text that every database can store: it has no NUL, nor a lone surrogate, which pydantic refuses.
StorableText: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00]*$")]
_Int64: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Natural: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
_Small: TypeAlias = Annotated[int, Field(ge=0, lt=2**31)]
_Rows: TypeAlias = dict[StorableText, _Natural]


_CHECKED: Mapping[Kind, Any] = {
    "text": StorableText,
    "integer": _Natural,
    "number": float,
    "boolean": bool,
    "time": _Int64,
    "integers": list[_Natural],
    "texts": list[StorableText],
    "pairs": list[list[float]],
}


@dataclass(frozen=True)
class _Object:
    """A type for pydantic: an object with fields of these types, and no others."""

    name: str
    fields: Mapping[str, Any]

    def of(self, row: Row) -> dict[str, object]:
        """Return the fields of this object from a row; one that the row lacks is None."""
        return {name: row.get(name) for name in self.fields}

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        make: Any = TypedDict
        return handler.generate_schema(with_config(_STRICT)(make(self.name, dict(self.fields))))


def _of_record(record: type, *without: str) -> _Object:
    """Return the object of a record; ``without`` are fields that the object around it has."""
    fields = stored_fields(record, *without)
    return _Object(record.__name__, {each.stored: _checked(each) for each in fields})


def _checked(field: results.Field) -> Any:
    kind = _CHECKED[field.kind]
    if field.about.small:
        kind = _Small
    elif field.about.micro:
        kind = _Natural
    if field.null:
        kind = kind | None
    return kind if field.about.absent is None else NotRequired[kind]


#: The columns that name a window, and those that its estimates repeat.
WINDOW_KEY = (*MetricKey._fields, "window_start")
_REPEATED = (*WINDOW_KEY, "window_end")

_WINDOW = _of_record(Window, "segment", "revision")
_SEGMENT = _Object(
    "Segment",
    {
        "segment": Annotated[StorableText, Field(min_length=1)],
        **{name: _WINDOW.fields[name] for name in ("n", "reports_by_level", "withheld")},
    },
)
_ALARM = _of_record(Alarm, *_REPEATED, "segment", "revision")
_ESTIMATE = _of_record(EstimateRecord, *_REPEATED, "revision", "complete")
_PERIOD = _of_record(Budget)
_HEALTH = _Object(
    "Health",
    {
        **{
            each.name: _Int64 | None if each.about.absent is None else NotRequired[_Int64 | None]
            for each in results.fields_of(JobNumbers)
        },
        "clock": _Int64 | None,
        "offsets": _Rows | None,
    },
)


class Document(BaseModel, ABC):
    """The base of all documents.

    :func:`parse` checks a document that it reads. A document that is made of rows is not checked
    before :attr:`record` serializes it: a SQL sink stores its rows as they are.
    """

    model_config = ConfigDict(frozen=True, **_STRICT)
    #: The fields that tell a document from all others of its kind.
    key_names: ClassVar[tuple[str, ...]] = ("collector",)
    #: The records of which :meth:`rows` returns all rows with the document's key.
    records: ClassVar[tuple[type, ...]]

    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)] = SCHEMA
    job: Annotated[StorableText, Field(min_length=1)]  #: random name of the deployment that made it
    #: At least 1; higher than that of every earlier document of the job with this key.
    revision: Annotated[int, Field(ge=1, lt=2**63)]

    @property
    def key(self) -> bytes:
        return _canonical([getattr(self, "kind"), *self.named.values()])  # noqa: B009

    @property
    def named(self) -> dict[str, Any]:
        """The values of the fields that the key is made of, by name."""
        return {name: self._about[name] for name in self.key_names}

    @property
    def collector_name(self) -> str:
        return str(self._about["collector"])

    @property
    def record(self) -> tuple[bytes, bytes]:
        """Key and value as a topic has them; FormatError if no database could store them."""
        content = self.content()
        try:
            value = _canonical(content)
        except (TypeError, ValueError):  # A number is not finite, or a mapping no dict.
            value = _canonical(_finite(content))
        return _parsed(value).key, value

    def content(self) -> dict[str, object]:
        """Return the fields of the JSON."""
        found = {name: getattr(self, name) for name in type(self).model_fields}
        return {"schema": found.pop("schema_"), **found}

    @abstractmethod
    def rows(self) -> dict[type, list[Row]]:
        """Return all rows with the document's key, by class of record, under stored names."""

    @property
    def _about(self) -> Mapping[str, Any]:
        return vars(self)


class WindowDocument(Document):
    """A window and its estimates; no estimates once all its reports are taken back."""

    key_names = WINDOW_KEY
    records = (Window, EstimateRecord, Alarm)

    kind: Literal["window"] = "window"
    pane: Pane
    window: Annotated[dict[str, Any], _WINDOW]
    alarms: tuple[Annotated[dict[str, Any], _ALARM], ...]
    #: An estimate of all reports has no field ``segment`` in JSON.
    estimates: tuple[Annotated[dict[str, Any], _ESTIMATE], ...]
    #: In JSON the field is left out if there are none.
    segments: tuple[Annotated[dict[str, Any], _SEGMENT], ...] = ()

    @classmethod
    def of(
        cls,
        job: str,
        window: Row,
        estimates: Sequence[Row],
        revision: int,
        pane: str,
        segments: Sequence[Row] = (),
    ) -> WindowDocument:
        """Return the document of rows.

        ``window``: a row of :func:`pipelines.aggregation.result_rows.rows_of_windows`; its
        ``revision`` is not used. ``estimates``: of this window alone, empty if its reports were all
        taken back. ``pane``: one of :data:`Pane`. ``segments``: the window's rows of segments, if
        it has any.
        """
        return cls.model_construct(
            job=job,
            revision=revision,
            pane=pane,
            window=_WINDOW.of(window),
            alarms=tuple(cast(Sequence[Row], window.get("alarms", ()))),
            estimates=tuple(
                {**_ESTIMATE.of(row), "segment": row.get("segment", "")} for row in estimates
            ),
            segments=tuple(map(_SEGMENT.of, segments)),
        )

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

    def content(self) -> dict[str, object]:
        found = super().content()
        estimates = [dict(each) for each in self.estimates]
        for each in estimates:
            if not each["segment"]:
                del each["segment"]
        found["estimates"] = estimates
        if not self.segments:
            del found["segments"]
        return found

    def rows(self) -> dict[type, list[Row]]:
        window: dict[str, object] = {**self.window, "segment": "", "revision": self.revision}
        repeated = {name: window[name] for name in (*_REPEATED, "segment", "revision")}
        complete = window["complete"]
        windows = [window, *({**window, **each} for each in self.segments)]
        return {
            Window: [*windows] if self.estimates else [],
            EstimateRecord: [{**repeated, "complete": complete, **each} for each in self.estimates],
            Alarm: [{**repeated, **each} for each in self.alarms],
        }


class PeriodDocument(Document):
    """The audit of a budget period."""

    key_names = ("collector", "period_start")
    records = (Budget,)

    kind: Literal["period"] = "period"
    period: Annotated[dict[str, Any], _PERIOD]

    @classmethod
    def of(cls, job: str, period: Row, revision: int) -> PeriodDocument:
        """Return the document of a row of the table ``periods``."""
        return cls.model_construct(job=job, revision=revision, period=_PERIOD.of(period))

    @property
    def _about(self) -> Mapping[str, Any]:
        return self.period

    def rows(self) -> dict[type, list[Row]]:
        return {Budget: [self.period]}


class RejectsDocument(Document):
    """How many reports were rejected, by reason, and how many of these were requeued since.

    ``requeued`` is None if that is not known.
    """

    records = (Rejection,)

    kind: Literal["rejects"] = "rejects"
    collector: StorableText
    rejects: _Rows
    requeued: _Rows | None

    @classmethod
    def of(
        cls,
        job: str,
        collector: str,
        rejects: Mapping[str, int],
        revision: int,
        requeued: Mapping[str, int] | None = None,
    ) -> RejectsDocument:
        """Return a document of what was rejected, and requeued if that is known."""
        return cls.model_construct(
            job=job, revision=revision, collector=collector, rejects=rejects, requeued=requeued
        )

    def rows(self) -> dict[type, list[Row]]:
        again = self.requeued
        return {
            Rejection: [
                {
                    "collector": self.collector,
                    "reason": reason,
                    "rows": number,
                    "requeued": None if again is None else again.get(reason, 0),
                }
                for reason, number in self.rejects.items()
            ]
        }


class HealthDocument(Document):
    """The state of a job."""

    records = (Health,)

    kind: Literal["health"] = "health"
    collector: StorableText
    health: Annotated[dict[str, Any], _HEALTH]

    @classmethod
    def of(cls, job: str, collector: str, health: Row, revision: int) -> HealthDocument:
        """Return the document of a job's state; fields that are left out are null."""
        if unknown := sorted(set(health) - set(_HEALTH.fields)):
            raise FormatError(f"health has no field {unknown[0]!r}")
        return cls.model_construct(
            job=job, revision=revision, collector=collector, health=_HEALTH.of(health)
        )

    def rows(self) -> dict[type, list[Row]]:
        row = {"collector": self.collector, "revision": self.revision, "document": self.health}
        return {Health: [row]}


_DOCUMENT: TypeAdapter[Document] = TypeAdapter(
    Annotated[
        WindowDocument | PeriodDocument | RejectsDocument | HealthDocument,
        Field(discriminator="kind"),
    ]
)
_FIELDS = {
    name
    for kind in (_WINDOW, _SEGMENT, _ALARM, _ESTIMATE, _PERIOD, _HEALTH)
    for name in kind.fields
} | {
    name
    for kind in (WindowDocument, PeriodDocument, RejectsDocument, HealthDocument)
    for name in kind.model_fields
}


def parse(key: bytes | None, value: bytes | None) -> Document:
    """Return the document of a record.

    >>> key, value = RejectsDocument.of("j", "fleet.example", {"late": 3}, revision=7).record
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
        return _DOCUMENT.validate_json(value)
    except ValidationError as error:
        raise FormatError(f"no document of schema {SCHEMA}: {_reason(error)}") from None


def _reason(error: ValidationError) -> str:
    """Return which field is invalid and why, without any of its content."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # Only names of fields are repeated: any other part of the path comes from the document.
    path = ".".join(str(part) for part in first["loc"] if part in _FIELDS or isinstance(part, int))
    reason = first["msg"] if first["type"] == "value_error" else first["type"]
    return f"{path}: {reason}" if path else reason


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _finite(value: object) -> object:
    """Return a value that JSON can hold: None for a number that is not finite, lists for tuples."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value
