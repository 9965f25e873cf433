"""The documents of a topic of estimates: canonical JSON, one key each, the newest counts.

Runs and streaming jobs write them, sinks read them; ``docs/formats.md`` has every field. A
document is a function of what it is about, so that publishing it twice changes nothing: of one
job, a consumer keeps the document of a key that has the highest revision.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pipelines.sinks.fields import (
    COMMON,
    ESTIMATE,
    FLOATS,
    HEALTH,
    KEYS,
    KINDS,
    LATER,
    PANES,
    PERIOD,
    SCHEMA,
    WINDOW,
    as_float,
    natural,
    require,
)
from sotto.errors import FormatError

Row: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class Document:
    """What all documents have.

    Parameters
    ----------
    job : str
        Random name of the deployment that made it.
    revision : int
        At least 1; higher than that of every earlier document of the job with this key.
    """

    job: str
    revision: int


@dataclass(frozen=True)
class WindowDocument(Document):
    """A window and what is estimated in it; no estimates once all its reports are taken back.

    Parameters
    ----------
    pane : str
        One of :data:`PANES`.
    window : mapping
        A row of the table ``windows``.
    estimates : tuple of mapping
        Its rows of the table ``estimates``.
    """

    pane: str
    window: Row
    estimates: tuple[Row, ...]


@dataclass(frozen=True)
class PeriodDocument(Document):
    """The audit of a budget period: a row of the table ``periods``."""

    period: Row


@dataclass(frozen=True)
class RejectsDocument(Document):
    """All that a job has rejected so far, and taken again since: numbers of reports by reason.

    Where the job cannot tell what of it has been taken again, that is None.
    """

    collector: str
    rejects: Mapping[str, int]
    requeued: Mapping[str, int] | None


@dataclass(frozen=True)
class HealthDocument(Document):
    """How a job is: the fields of :data:`HEALTH`."""

    collector: str
    health: Row


def window_document(
    job: str, window: Row, estimates: Sequence[Row], revision: int, pane: str
) -> tuple[bytes, bytes]:
    """Return key and value for a window.

    Parameters
    ----------
    job : str
    window : mapping
        A row of :func:`pipelines.aggregation.result_rows.rows_of_windows`; its ``revision`` is not
        used.
    estimates : sequence of mapping
        Of this window alone, empty if its reports were all taken back.
    revision : int, at least 1
    pane : str
        One of :data:`PANES`.

    Raises
    ------
    FormatError
        A field is missing or is not what it must be.
    """
    value = {
        "pane": pane,
        "window": {name: window.get(name) for name in WINDOW},
        "estimates": [{name: row.get(name) for name in ESTIMATE} for row in estimates],
    }
    return _packed("window", job, revision, value)


def period_document(job: str, period: Row, revision: int) -> tuple[bytes, bytes]:
    """Return key and value for a row of the table ``periods``."""
    value = {"period": {name: period.get(name) for name in PERIOD}}
    return _packed("period", job, revision, value)


def rejects_document(
    job: str,
    collector: str,
    rejects: Mapping[str, int],
    revision: int,
    requeued: Mapping[str, int] | None = None,
) -> tuple[bytes, bytes]:
    """Return key and value for what was rejected since the job began, by reason.

    Parameters
    ----------
    job, collector : str
    rejects : mapping
    revision : int, at least 1
    requeued : mapping, optional
        How many of them have been taken again; not given where that is not known.

    Raises
    ------
    FormatError
        A number is none.
    """
    value = {
        "collector": collector,
        "rejects": dict(rejects),
        "requeued": None if requeued is None else dict(requeued),
    }
    return _packed("rejects", job, revision, value)


def health_document(job: str, collector: str, health: Row, revision: int) -> tuple[bytes, bytes]:
    """Return key and value for how a job is.

    Parameters
    ----------
    job, collector : str
    health : mapping
        Fields of :data:`HEALTH`; those that are left out are null.
    revision : int, at least 1

    Raises
    ------
    FormatError
        Another field, or one that is not what it must be.
    """
    if other := sorted(set(health) - set(HEALTH)):
        raise FormatError(f"health has no field {other[0]!r}")
    value = {"collector": collector, "health": {name: health.get(name) for name in HEALTH}}
    return _packed("health", job, revision, value)


def parse(key: bytes | None, value: bytes | None) -> Document:
    """Return the document of a record.

    Raises
    ------
    FormatError
        It is none, one of another schema, or one under another key.

    Examples
    --------
    >>> key, value = rejects_document("j", "fleet.example", {"late": 3}, revision=7)
    >>> key
    b'["rejects","fleet.example"]'
    >>> parse(key, value).rejects
    {'late': 3}
    """
    said = _object(value)
    if said.get("schema") != SCHEMA:
        raise FormatError("no document of schema 1")
    document = _document(said)
    if key != _key(said):
        raise FormatError("the key is that of another document")
    return document


def _document(said: Mapping[str, Any]) -> Document:
    kind = said.get("kind")
    require(said, KINDS.get(kind, {}) if isinstance(kind, str) else {}, "document")
    job, revision = said["job"], said["revision"]
    if kind == "window":
        return _window(said)
    if kind == "period":
        require(said["period"], PERIOD, "period")
        return PeriodDocument(job, revision, said["period"])
    if kind == "rejects":
        for name in ("rejects", "requeued"):
            require(said[name] or {}, dict.fromkeys(said[name] or {}, natural), name)
        return RejectsDocument(job, revision, said["collector"], said["rejects"], said["requeued"])
    require(said["health"], HEALTH, "health")
    return HealthDocument(job, revision, said["collector"], said["health"])


def _window(said: Mapping[str, Any]) -> WindowDocument:
    about = {**dict.fromkeys(LATER["window"]), **said["window"]}
    require(about, WINDOW, "window")
    common = {name: about[name] for name in COMMON} | {"revision": said["revision"]}
    rows = []
    for given in said["estimates"]:
        row = {**dict.fromkeys(LATER["estimates"]), **given}
        require(row, ESTIMATE, "estimates")
        rows.append({**common, **row, **{name: as_float(row[name]) for name in FLOATS}})
    if len({(row["kind"], row["item"]) for row in rows}) < len(rows):
        raise FormatError("estimates: two are of the same")
    window = {**about, "revision": said["revision"]}
    return WindowDocument(said["job"], said["revision"], said["pane"], window, tuple(rows))


def _packed(kind: str, job: str, revision: int, more: Row) -> tuple[bytes, bytes]:
    said = {"schema": SCHEMA, "kind": kind, "job": job, "revision": revision, **more}
    value = _canonical(_finite(said))
    said = _object(value)
    _document(said)
    return _key(said), value


def _key(said: Mapping[str, Any]) -> bytes:
    kind = said["kind"]
    about = said[kind] if kind in ("window", "period") else said
    return _canonical([kind, *(about[name] for name in KEYS[kind])])


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


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        said = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise FormatError("no JSON document") from error
    if not isinstance(said, dict):
        raise FormatError("no JSON object")
    return said


__all__ = [
    "HEALTH",
    "PANES",
    "SCHEMA",
    "Document",
    "HealthDocument",
    "PeriodDocument",
    "RejectsDocument",
    "WindowDocument",
    "health_document",
    "parse",
    "period_document",
    "rejects_document",
    "window_document",
]
