"""The plan as it is written: YAML, its keys and types, before anything is chosen or compiled.

Values are checked *in themselves* here; what the values must be *together* is checked once for all
plans, compiled ones too, by :mod:`sotto.plan.checks`.
"""

from __future__ import annotations

import builtins
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from mechanisms.frozen import names_of
from mechanisms.registry import mechanisms_for
from sotto.errors import PlanError, did_you_mean
from sotto.plan.checks import MAX_DOMAIN
from sotto.plan.compiled import MINIMUM_REPORTS
from sotto.plan.measures import KINDS, NO_STEP, Measure, edge_labels
from sotto.plan.metric import TYPES, CompiledMetric, Parameter
from sotto.plan.scalars import Day, Duration, Micro, Number, Panel, Text, Words, shown

#: Problems shown of one plan.
_MOST = 20


class _Model(BaseModel):
    """A mapping of a plan file: unknown keys are refused, and nothing changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LevelFile(_Model):
    """A level of a ladder: epsilon, and the delay after which it is released."""

    epsilon: Micro
    after: Duration = 0


class RepeatFile(_Model):
    """How many values: one a period (first, or at random), the first N of it, or one for life."""

    once: Literal["first", "reservoir"] | None = None
    every: StrictInt | None = None
    constant: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> RepeatFile:
        if [self.once, self.every, self.constant].count(None) != 2:
            raise ValueError(
                "must be {once: first}, {once: reservoir}, {every: N} or {constant: true}"
            )
        return self

    @property
    def kind(self) -> str:
        """``first``, ``reservoir``, ``every`` or ``constant``."""
        return self.once or ("constant" if self.constant else "every")

    @property
    def limit(self) -> int:
        """Values a period."""
        return 1 if self.every is None else self.every


class OtelFile(_Model):
    """The instrument of OpenTelemetry that feeds a metric, and the attribute with its value."""

    instrument: StrictStr
    attribute: StrictStr | None = None


class MeasureFile(_Model):
    """The device's own way to a value: what it adds up over a period."""

    count: Text | None = None
    days: Text | None = None
    furthest: tuple[Text, ...] | None = None
    age: Duration | None = None
    up_to: StrictInt | None = None
    max: Text | None = None
    min: Text | None = None
    sum: Text | None = None
    last: Text | None = None
    used: Text | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> MeasureFile:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1 or (self.up_to is None) == (self.age is not None):
            listed = ", ".join(f"{{{kind}: ...}}" for kind in KINDS if kind != "age")
            raise ValueError(f"must be one of {listed} and {{age: 7d, up_to: 12}}")
        return self

    @property
    def compiled(self) -> Measure:
        [kind] = [kind for kind in KINDS if getattr(self, kind) is not None]
        of = getattr(self, kind)
        return Measure(kind, of if isinstance(of, str) else "", self.age or 0)


class Named(NamedTuple):
    """A mechanism, and those of its parameters that are written."""

    name: str
    parameters: Mapping[str, Parameter]


class _BitAware(_Model):
    """A number as bits, of which some are sampled, or over which epsilon is split."""

    bit_aware: Literal["sampled", "split"]
    bits: StrictInt
    count: StrictInt | None = None

    @model_validator(mode="after")
    def _only_sampled(self) -> _BitAware:
        if self.count is not None and self.bit_aware != "sampled":
            raise ValueError("has a count only where bits are sampled")
        return self

    @property
    def named(self) -> Named:
        if self.count is not None:
            return Named("sampled_bits", {"bits": self.bits, "count": self.count})
        name = {"sampled": "sampled_bit", "split": "split_bits"}[self.bit_aware]
        return Named(name, {"bits": self.bits})


class _Sampled(_Model):
    """Some of a vector's coordinates are sampled, and a bit of each, or a threshold (0 bits)."""

    sampled: StrictInt
    bits: StrictInt = 0

    @property
    def named(self) -> Named:
        return Named("sampled_vector", {"bits": self.bits, "sampled": self.sampled})


#: Short forms of mechanisms: the type that may use one, and the key by which it is known.
_SHORT_FORMS: Mapping[str, tuple[str, type[_BitAware] | type[_Sampled]]] = {
    "number": ("bit_aware", _BitAware),
    "vector": ("sampled", _Sampled),
}


def _mechanism(kind: str, value: object) -> Named:
    """Read ``name``, ``{name: {parameter: value}}`` or a short form, of those a type may use."""
    key, form = _SHORT_FORMS.get(kind, ("", _Sampled))
    if isinstance(value, dict) and key in value:
        try:
            return form.model_validate(value).named
        except ValidationError as error:
            raise ValueError("; ".join(_lines(error))) from None
    name: object = value
    given: object = {}
    if isinstance(value, dict) and len(value) == 1:
        [(name, given)] = value.items()
    allowed = mechanisms_for(kind)
    if not isinstance(name, str) or name not in allowed:
        *most, last = map(repr, allowed)
        listed = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{shown(name)} must be {listed}{did_you_mean(name, allowed)}")
    if not isinstance(given, dict):
        raise ValueError(f"{name}: its parameters must be a mapping, not {shown(given)}")
    if "name" in given:
        raise ValueError(f"{name}: unknown key 'name'")
    return Named(name, {str(key): _parameter(name, key, each) for key, each in given.items()})


def _parameter(name: str, key: object, value: object) -> Parameter:
    if isinstance(value, list) and all(type(each) is int for each in value):
        return tuple(value)
    if isinstance(value, bool | int | str):
        return value
    raise ValueError(
        f"{name}: {key} {shown(value)} must be a whole number, true or false, or a list of numbers"
    )


class MetricFile(_Model):
    """Keys of a metric of any type."""

    #: Those of its fields that are parameters of its mechanism.
    _parameters: ClassVar[tuple[str, ...]] = ("missing",)

    type: str
    window: Duration
    repeat: RepeatFile = RepeatFile(once="first")
    ladder: tuple[LevelFile, ...]
    missing: StrictBool = False
    panel: Panel | None = None
    mechanism: Named | None = None
    description: Words | None = None
    purpose: Words | None = None
    data_type: StrictStr | None = None
    group: StrictStr | None = None
    otel: OtelFile | None = None
    measure: MeasureFile | None = None
    stored: StrictBool = False

    @field_validator("mechanism", mode="before")
    @classmethod
    def _read_mechanism(cls, value: object) -> Named | None:
        (kind,) = get_args(cls.model_fields["type"].annotation)
        return None if value is None else _mechanism(kind, value)

    @property
    def holds_response(self) -> bool:
        """Whether the last level is a response that stays on the device."""
        return self.repeat.kind == "constant" or bool(self.measure and self.measure.used)

    @property
    def size(self) -> int | None:
        """How many symbols there are, ``missing`` included; None where they are not counted."""
        return None

    @property
    def given(self) -> dict[str, Parameter]:
        """Parameters of its mechanism that the metric itself gives."""
        given = {name: getattr(self, name) for name in self._parameters}
        return given if self.size is None else {"domain_size": self.size, **given}

    @property
    def details(self) -> dict[str, object]:
        """Those of its fields that the compiled plan has, too; None for an absent one."""
        shared = set(names_of(CompiledMetric))
        said = {name: each for name, each in self if name in shared}
        otel = self.otel and self.otel.model_dump(exclude_none=True)
        return {**said, "otel": otel, "measure": self.measure and self.measure.compiled}


class BooleanFile(MetricFile):
    """True or false."""

    type: Literal["boolean"]

    @property
    def size(self) -> int:
        return 2 + self.missing


class SurveyFile(BooleanFile):
    """A question that is answered with yes or no."""

    type: Literal["survey"]  # type: ignore[assignment]
    question: Text


class CategoryFile(MetricFile):
    """One of a list of values."""

    type: Literal["category"]
    domain: tuple[Text, ...]
    outside: Text

    @property
    def size(self) -> int:
        return len(self.domain) + (self.outside not in self.domain) + self.missing


class TopItemFile(CategoryFile):
    """The most frequent of the items that are recorded in a period."""

    _parameters = ("missing", "clip")
    type: Literal["top_item"]  # type: ignore[assignment]
    clip: StrictInt


class StringFile(MetricFile):
    """Text that need not be known in advance."""

    _parameters = ("bits", "hashes", "cohorts")
    type: Literal["string"]
    bits: StrictInt = 128
    hashes: StrictInt = 2
    cohorts: StrictInt = 16
    candidates: StrictStr | None = None
    false_discovery_rate: StrictFloat | None = None


class NumberFile(MetricFile):
    """A number in a range."""

    type: Literal["number"]
    range: tuple[Number, Number]
    unit: StrictStr | None = None
    outside: Literal["clip"]
    #: Whether the mechanism that is chosen must show quantiles with intervals.
    quantiles: StrictBool = False

    @model_validator(mode="after")
    def _chosen_for_quantiles(self) -> NumberFile:
        if self.quantiles and self.mechanism is not None:
            raise ValueError("quantiles: true chooses the mechanism; leave out one of the two")
        if self.quantiles and self.repeat.kind == "constant":
            raise ValueError(
                "quantiles need a public coin, which a constant metric cannot have; leave them out"
            )
        return self


class VectorFile(NumberFile):
    """A fixed number of numbers in a range."""

    _parameters = ("missing", "dimensions")
    type: Literal["vector"]  # type: ignore[assignment]
    dimensions: StrictInt


class OrdinalFile(MetricFile):
    """One of a list of values in order, of equidistant points of a range, or of bins."""

    type: Literal["ordinal"]
    values: tuple[Text, ...] | None = None
    range: tuple[Number, Number] | None = None
    points: StrictInt | None = None
    edges: tuple[StrictInt, ...] | None = None
    unit: StrictStr | None = None
    outside: Text | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> OrdinalFile:
        given = (self._values, self.range, self._edges, self.values and self._steps)
        if len([each for each in given if each is not None]) != 1 or (
            (self.range is None) != (self.points is None)
        ):
            raise ValueError("must have either values, or range and points, or edges")
        return self

    @property
    def _steps(self) -> tuple[str, ...] | None:
        steps = self.measure and self.measure.furthest
        return None if steps is None else (NO_STEP, *steps)

    @property
    def _values(self) -> tuple[str, ...] | None:
        return self.values or self._steps

    @property
    def _edges(self) -> tuple[int, ...] | None:
        """The bins; of an age they are all ages, the last one open."""
        most = self.measure.up_to if self.measure else None
        if most is None or self.edges is not None:
            return self.edges
        return (*builtins.range(min(most, MAX_DOMAIN) + 1),)

    @property
    def size(self) -> int:
        return (self.points or len(self._edges or self._values or ())) + self.missing

    @property
    def details(self) -> dict[str, object]:
        outside: str | None = "clip"
        domain = self._values
        if self._edges is not None:
            domain = edge_labels(self._edges) if self._edges else ()
        elif self.range is None:
            values = domain or ()
            middle = values[(len(values) - 1) // 2] if values else None
            outside = "missing" if self.missing else NO_STEP if self._steps else middle
        place = {"range": self.range, "domain": domain, "edges": self._edges}
        return {**super().details, **place, "outside": self.outside or outside}


class DecisionFile(_Model):
    """The metric that decides an experiment, its first and last day, and the number of looks."""

    metric: Text
    start: Day
    end: Day
    looks: StrictInt


class ExperimentFile(_Model):
    """Arms to which devices are assigned, the share that takes part, and the planned end."""

    name: Text
    arms: tuple[Text, ...]
    share: Micro = 1_000_000
    decision: DecisionFile | None = None


class CeilingsFile(_Model):
    """Epsilon that a device may spend in one period, and in its lifetime."""

    period: Micro
    lifetime: Micro


_AnyMetric: TypeAlias = (
    CategoryFile
    | BooleanFile
    | StringFile
    | NumberFile
    | OrdinalFile
    | SurveyFile
    | VectorFile
    | TopItemFile
)


class PlanFile(_Model):
    """The whole file."""

    collector: StrictStr
    plan: StrictStr
    version: StrictInt
    owner: StrictStr
    expires: Day
    period: Duration
    ceilings: CeilingsFile
    resolution: Duration
    grace: Duration = 86_400_000
    retention: Duration = 30 * 86_400_000
    shards: StrictInt = 64
    panel: Panel = 1
    minimum_reports: StrictInt = MINIMUM_REPORTS
    authentication: Literal["none", "required"] = "none"
    description: Words | None = None
    purpose: Words | None = None
    groups: dict[Text, Words] = {}
    segments: dict[Text, tuple[Text, ...]] = {}
    experiment: ExperimentFile | None = None
    metrics: dict[Text, Annotated[_AnyMetric, Field(discriminator="type")]]


def yaml_reason(error: Exception) -> str:
    """Return what is wrong with a text of YAML, and where."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if not isinstance(error, yaml.YAMLError):
        # Such as a date that is none, 2026-13-01, which YAML makes as it reads.
        return str(error)
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return where + (getattr(error, "problem", None) or "not YAML")


def nearest_key(name: object, known: Sequence[str]) -> str:
    """Return what to say of an unknown key of a mapping: the nearest known key, or all of them."""
    return did_you_mean(name, known) or f"; its keys are {', '.join(known)}"


def read_plan(text: str) -> PlanFile:
    """Read the text of a plan.

    Raises PlanError if it is not YAML, a key is unknown, missing or repeated, or a value has the
    wrong type.
    """
    try:
        document = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PlanError(f"the plan cannot be read as YAML: {yaml_reason(error)}") from None
    if not isinstance(document, dict):
        got = "nothing" if document is None else type(document).__name__
        keys = ", ".join(PlanFile.model_fields)
        raise PlanError(f"a plan is a YAML mapping with the keys {keys}; got {got}")
    try:
        return PlanFile.model_validate(document)
    except ValidationError as error:
        lines = _lines(error)
        more = [f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
        raise PlanError("\n".join(lines[:_MOST] + more)) from None


class _Loader(yaml.SafeLoader):
    """YAML's safe subset, with exact decimals, and without repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"repeated key {key!r}", problem_mark=key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> Decimal | float:
        value: float = self.construct_yaml_float(node)
        try:
            return Decimal(str(node.value).replace("_", ""))
        except InvalidOperation:
            return value


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_decimal)

#: Expected values, by pydantic's name of a type, or by a key.
_MAPPING = "a mapping, such as {key: value}"
_WANTED = {
    "tuple_type": "a list, such as [a, b]",
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "string_type": "text: write it in quotes",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "candidates": "the name of a file beside the plan, with one string a line",
}
#: Shapes that a mapping or a list has in a plan, by key.
_SHAPES = {
    "ceilings": "{period: 6, lifetime: 300}",
    "repeat": "{once: first} or {every: 3}",
    "ladder": "[{epsilon: 0.5}, {epsilon: 1, after: 1d}]",
    "measure": "{count: export} or {age: 7d, up_to: 12}",
    "metrics": "{theme: {type: category, ...}}",
    "otel": "{instrument: http.client.request.duration}",
}
_SHAPELESS = ("tuple_type", "model_type", "model_attributes_type", "dict_type")


def _lines(error: ValidationError) -> list[str]:
    """Return a line for every problem: metric, level, key, and what is allowed."""
    return [_line(each) for each in error.errors(include_url=False)]


def _line(error: Any) -> str:
    kind, context = error["type"], error.get("ctx", {})
    where, key = _where(error["loc"])
    if kind in ("missing", "union_tag_not_found"):
        return f"{where}{key if kind == 'missing' else 'type'} is missing"
    if kind == "extra_forbidden":
        *outer, name = key.rpartition(".")
        known = _keys(error["loc"][:-1])
        near = nearest_key(name, known)
        return f"{where}{outer[0] + ': ' if outer[0] else ''}unknown key {name!r}{near}"
    if kind == "union_tag_invalid":
        near = did_you_mean(context["tag"], TYPES)
        return f"{where}type {context['tag']!r} must be one of {context['expected_tags']}{near}"
    if kind == "invalid_key":
        return f"{where}the key {shown(error['input'])} must be text; a decimal is written 0.5"
    named = f"{key} " if key else ""
    found = shown(error["input"])
    if kind == "literal_error":
        return f"{where}{named}{found} must be {context['expected'].replace('True', 'true')}"
    if kind == "value_error":
        return f"{where}{named}{context['error']}"
    if kind == "too_long":
        return f"{where}{named}{found} must have {context['max_length']} values"
    expected = _WANTED.get(key) or _WANTED.get(kind) or error["msg"]
    shape = _SHAPES.get(str(error["loc"][-1]))
    if kind in _SHAPELESS and (shape or not key):
        expected = f"{expected.partition(',')[0]}, such as {shape or '{epsilon: 0.5}'}"
    return f"{where}{named}{found} must be {expected}"


def _keys(place: tuple[str | int, ...]) -> list[str]:
    """Return the keys that the mapping at a place of a plan file may have."""
    models: dict[str, type[_Model]] = {
        "ceilings": CeilingsFile,
        "decision": DecisionFile,
        "experiment": ExperimentFile,
        "ladder": LevelFile,
        "measure": MeasureFile,
        "otel": OtelFile,
        "repeat": RepeatFile,
    }
    for kind in get_args(_AnyMetric):
        models |= dict.fromkeys(get_args(kind.model_fields["type"].annotation), kind)
    names = [each for each in place if isinstance(each, str)]
    return [*models.get(names[-1] if names else "", PlanFile).model_fields]


def _where(place: tuple[str | int, ...]) -> tuple[str, str]:
    """Return the metric and level, and the key, at which an error is."""
    rest = list(place)
    parts = []
    if rest and rest[-1] == "[key]":
        return "", f"{rest[0]}: the name"
    if len(rest) > 1 and rest[0] == "metrics":
        parts.append(f"metric {rest[1]!r}")
        # Pydantic adds the type, by which it has chosen the model.
        rest = rest[3:] if len(rest) > 2 and rest[2] in TYPES else rest[2:]
        if len(rest) > 1 and rest[0] == "ladder" and isinstance(rest[1], int):
            parts.append(f"level {rest[1] + 1}")
            rest = rest[2:]
    words = [f"value {each + 1}" if isinstance(each, int) else str(each) for each in rest]
    where = ", ".join(parts)
    return (f"{where}: " if where else ""), ".".join(words).replace(".value", " value")
