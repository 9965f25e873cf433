"""The OpenAPI description of the answers of ``/api/v1``, made from the columns of the views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pipelines.http.problems import CONTENT
from pipelines.results.fields import Field, Kind, fields_of
from pipelines.results.records import JobNumbers
from pipelines.results.views import RowSet

Schema: TypeAlias = dict[str, Any]
Answers: TypeAlias = dict[int | str, dict[str, Any]]
Format: TypeAlias = Literal["json", "csv", "parquet", "arrow"]

#: By format.
MEDIA_TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}

_NULL = {"type": "null"}
_TYPES: Mapping[Kind, Schema] = {
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "integers": {"type": "array", "items": {"type": "integer"}},
    "texts": {"type": "array", "items": {"type": "string"}},
    "pairs": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
}
#: Values that examples have in a column that has none of its own.
_EXAMPLES: Mapping[Kind, object] = {
    "integer": 4810,
    "time": "2013-06-01T00:00:00.000Z",
    "integers": [10, 800, 4000],
}
_PROBLEM = {
    name: {**said, "example": {"title": "there are no results yet", "status": 503}}
    for name, said in CONTENT.items()
}
#: Why a request is refused, by status.
_REFUSED = {
    404: "no results have a name that is given",
    408: "it did not arrive in time",
    409: "the file of notes cannot be read with it",
    413: "too long",
    415: "not sent as application/json",
    422: "no such parameter, value or note",
}

#: A plan and the health of a job, as JSON has them.
PLAN: Schema = {
    "type": "object",
    "properties": {
        "fingerprint": {"type": "string", "description": "by which reports name the plan"},
    },
    "required": ["fingerprint"],
}
HEALTH: Schema = {
    "type": "object",
    "properties": {
        "collector": {"type": "string"},
        "job": {"type": "string", "description": "its random name"},
        "generation": {"type": "integer", "description": "grows with every change"},
        "clock": {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "append time up to which reports have been read",
        },
        **{
            each.name: {"type": ["integer", "null"], "description": each.about.text}
            for each in fields_of(JobNumbers)
        },
        "offsets": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "partition to the offset that the job reads next",
        },
    },
}


def answers(name: str, item: Schema) -> Answers:
    """Return the answers of a route whose JSON has a list of items under a name."""
    properties = {name: {"type": "array", "items": item}}
    schema = {"type": "object", "properties": properties, "required": [name]}
    return {
        200: {"description": "what there is", "content": {"application/json": {"schema": schema}}},
        304: {"description": "not changed since If-None-Match"},
        503: {"description": "there are no results, or not now", "content": _PROBLEM},
    }


def refused(*statuses: int) -> Answers:
    """Return the answers that refuse a request, by status."""
    return {each: {"description": _REFUSED[each], "content": _PROBLEM} for each in statuses}


def page_of(view: RowSet) -> Answers:
    """Return the answers of a route whose rows have the columns of ``view``, a page at a time."""
    columns = {each.name: _column(each) for each in view.columns}
    found = answers(view.name, {"type": "object", "properties": columns, "required": list(columns)})
    content = found[200]["content"]
    schema = content["application/json"]["schema"]
    said = "cursor of the next page; null on the last one"
    schema["properties"]["next"] = {"type": ["string", "null"], "description": said}
    schema["required"].append("next")
    row = {
        each.name: _EXAMPLES.get(each.kind) if each.about.example is None else each.about.example
        for each in view.columns
    }
    content["application/json"]["example"] = {view.name: [row], "next": None}
    for kind, media_type in MEDIA_TYPES.items():
        text: Schema = {"type": "string"}
        if kind != "json":
            binary = text if kind == "csv" else {**text, "format": "binary"}
            content[media_type.partition(";")[0]] = {"schema": binary}
    return found | refused(404, 422)


def _column(column: Field) -> Schema:
    return {"description": column.about.text, "anyOf": [_TYPES[column.kind], _NULL]}
