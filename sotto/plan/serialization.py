"""A compiled plan as a JSON document, and back: names and types of fields, nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sotto.errors import PlanError
from sotto.plan.types import Parameter

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

T = TypeVar("T")

#: Of compiled plans.
FORMAT = 2
#: Of how many reports an estimate is at least, where a plan does not say.
MINIMUM_REPORTS = 20
#: Keys of a compiled plan that are left out where a plan says nothing else.
DEFAULTS: Mapping[str, Any] = {"authentication": "none", "minimum_reports": MINIMUM_REPORTS}
_REQUIRED: Any = object()
#: Far beyond every range that is checked later, and still a float.
_LARGEST = 10**100
#: What the fingerprint covers: all that decides which bytes a device sends, and how they are
#: decoded and counted. ``docs/formats.md`` says of each other field why it is left out.
_ON_THE_WIRE = frozenset(
    {"collector", "plan", "version", "period", "resolution", "grace", "shards", "ceilings"}
    | {"authentication"}
)
_METRIC_ON_THE_WIRE = frozenset(
    {"name", "type", "mechanism", "missing", "window", "repeat", "ladder", "panel"}
    | {"domain", "outside", "range"}
)


def document_of(plan: CompiledPlan) -> dict[str, object]:
    """Return the plan as a JSON document (``docs/formats.md``)."""
    return {
        "format": FORMAT,
        "collector": plan.collector,
        "plan": plan.plan,
        "version": plan.version,
        "owner": plan.owner,
        "expires": plan.expires,
        "period": plan.period,
        "resolution": plan.resolution,
        "grace": plan.grace,
        "retention": plan.retention,
        "shards": plan.shards,
        "ceilings": {"period": plan.ceilings.period, "lifetime": plan.ceilings.lifetime},
        "metrics": [metric_document(metric) for metric in plan.metrics],
        **{
            name: getattr(plan, name)
            for name, default in DEFAULTS.items()
            if getattr(plan, name) != default
        },
    }


def wire_document_of(plan: CompiledPlan) -> dict[str, object]:
    """Return of the plan's JSON document what the fingerprint covers."""
    document = document_of(plan)
    return {
        **{key: value for key, value in document.items() if key in _ON_THE_WIRE},
        "metrics": [
            {key: value for key, value in metric.items() if key in _METRIC_ON_THE_WIRE}
            for metric in map(metric_document, plan.metrics)
        ],
    }


def canonical(document: Mapping[str, object]) -> bytes:
    """Return a JSON document as canonical bytes (``docs/formats.md``)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def brought_forward(data: bytes) -> bytes | None:
    """Return what a compiled plan of format 1 is in this format; None if it is none of that.

    Raises
    ------
    PlanError
        It is one, and cannot be honoured.
    """
    from sotto.plan.checks import check

    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("format") != 1:
        return None
    plan = plan_of({**document, "format": FORMAT})
    check(plan)
    return plan.to_json()


def metric_document(metric: CompiledMetric) -> dict[str, object]:
    """Return a metric as it is in its plan's JSON document."""
    optional = {
        "domain": None if metric.domain is None else list(metric.domain),
        "outside": metric.outside,
        "range": None if metric.range is None else list(metric.range),
        "unit": metric.unit,
        "question": metric.question,
        "panel": metric.panel if metric.panel > 1 else None,
    }
    return {
        "name": metric.name,
        "type": metric.type,
        "mechanism": {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in metric.parameters
        },
        "missing": metric.missing,
        "window": metric.window,
        "repeat": {"kind": metric.kind, "limit": metric.limit},
        "ladder": [{"epsilon": rung.epsilon, "after": rung.after} for rung in metric.ladder],
        **{key: value for key, value in optional.items() if value is not None},
    }


def plan_of(document: object) -> CompiledPlan:
    """Return the plan that a JSON document describes, its parameters not yet checked.

    Raises
    ------
    PlanError
        A field is missing, has the wrong type, or the document is of another format.
    """
    from sotto.plan.compiled import Ceilings, CompiledPlan

    fields = _Fields(document, "the compiled plan")
    if fields.take("format", int) != FORMAT:
        raise PlanError(
            f"the compiled plan is of another format than {FORMAT}: compile the plan again"
        )
    ceilings = _Fields(fields.take("ceilings", dict), "ceilings")
    period, grace = fields.take("period", int), fields.take("grace", int)
    return CompiledPlan(
        collector=fields.take("collector", str),
        plan=fields.take("plan", str),
        version=fields.take("version", int),
        owner=fields.take("owner", str),
        expires=fields.take("expires", int),
        period=period,
        resolution=fields.take("resolution", int),
        grace=grace,
        retention=fields.take("retention", int),
        shards=fields.take("shards", int),
        ceilings=Ceilings(ceilings.take("period", int), ceilings.take("lifetime", int)),
        metrics=tuple(
            _metric_of(item, index, period + grace)
            for index, item in enumerate(fields.take("metrics", list))
        ),
        minimum_reports=fields.take("minimum_reports", int, DEFAULTS["minimum_reports"]),
        authentication=fields.take("authentication", str, DEFAULTS["authentication"]),
    )


def _metric_of(document: object, index: int, lateness: int) -> CompiledMetric:
    from sotto.plan.compiled import CompiledMetric, Rung

    where = f"metric {index + 1}"
    name = _Fields(document, where).take("name", str)
    fields = _Fields(document, f"metric {name!r}")
    repeat = _Fields(fields.take("repeat", dict), f"metric {name!r}, repeat")
    rungs = [
        _Fields(item, f"metric {name!r}, rung {number}")
        for number, item in enumerate(fields.take("ladder", list), start=1)
    ]
    ladder = tuple(Rung(rung.take("epsilon", int), rung.take("after", int)) for rung in rungs)
    kind = repeat.take("kind", str)
    # The last rung of a constant metric is never sent.
    sent = ladder[:-1] if kind == "constant" else ladder
    panel = fields.take("panel", int, None)
    limits = fields.items("range", (int, float))
    if limits is not None and len(limits) != 2:
        raise PlanError(f"metric {name!r}: range must be two numbers, low and high")
    return CompiledMetric(
        index=index,
        name=name,
        type=fields.take("type", str),
        parameters=_parameters(fields.take("mechanism", dict), name),
        domain=fields.items("domain", (str,)),
        outside=fields.take("outside", str, None),
        missing=fields.take("missing", bool),
        range=None if limits is None else (_float(limits[0]), _float(limits[1])),
        unit=fields.take("unit", str, None),
        window=fields.take("window", int),
        kind=kind,
        limit=repeat.take("limit", int),
        ladder=ladder,
        horizon=(sent[-1].after if sent else 0) + lateness,
        question=fields.take("question", str, None),
        panel=1 if panel is None else panel,
    )


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _parameters(document: Mapping[str, object], name: str) -> tuple[tuple[str, Parameter], ...]:
    return tuple((key, _parameter(name, key, document[key])) for key in sorted(document))


def _parameter(name: str, key: str, value: object) -> Parameter:
    if isinstance(value, list) and all(_is_whole(each) for each in value):
        return tuple(value)
    if isinstance(value, str) or (isinstance(value, int) and -_LARGEST <= value <= _LARGEST):
        return value
    raise PlanError(f"metric {name!r}: mechanism parameter {key!r} has the wrong type")


def _is_whole(value: object) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


class _Fields:
    """A JSON object whose fields are taken by name and exact type."""

    def __init__(self, document: object, where: str) -> None:
        if not isinstance(document, dict):
            raise PlanError(f"{where}: a JSON object was expected")
        self._document = document
        self._where = where

    def take(self, name: str, kind: type[T], default: Any = _REQUIRED) -> T:
        value = self._document.get(name, default)
        if value is _REQUIRED:
            raise PlanError(f"{self._where}: {name!r} is missing")
        # A JSON true is no number, though Python's bool is an int.
        if type(value) is not kind and not (value is None and default is None):
            raise PlanError(f"{self._where}: {name!r} must be {kind.__name__}")
        if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
            raise PlanError(f"{self._where}: {name!r} is an absurdly large number")
        return cast(T, value)

    def items(self, name: str, kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
        values = self._document.get(name)
        if values is None:
            return None
        if not (isinstance(values, list) and all(type(value) in kinds for value in values)):
            raise PlanError(f"{self._where}: {name!r} must be a list of {kinds[-1].__name__}")
        return tuple(values)
