"""The plan as it is written: YAML, its keys and types, before anything is chosen or compiled.

What a value may be *in itself* is checked here; what the values must be *together* is checked
once for all plans, compiled ones too, by :mod:`sotto.checks`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
    model_validator,
)

from sotto.durations import parse_duration
from sotto.errors import PlanError
from sotto.metrictypes import MECHANISMS, Parameter
from sotto.planerrors import explain

_MICRO = 1_000_000


def _micro(value: object) -> int:
    """Return micro-epsilon: exactly what is written, or an error."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("must be a number")
    try:
        micro = Decimal(str(value)) * _MICRO
    except InvalidOperation:
        raise ValueError(f"{value!r} must be a number") from None
    if not micro.is_finite():
        raise ValueError(f"{value} must be finite")
    if micro != micro.to_integral_value():
        raise ValueError(f"{value} must have at most 6 decimals: amounts are millionths")
    return int(micro)


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError("must be a number")
    return float(value)


def _date(value: object) -> date:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ValueError("must be a date such as 2027-06-30")
    return value


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text for YAML: write it in quotes")
    return value


Micro: TypeAlias = Annotated[int, BeforeValidator(_micro)]
Duration: TypeAlias = Annotated[int, BeforeValidator(parse_duration)]
Number: TypeAlias = Annotated[float, BeforeValidator(_finite)]
Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Day: TypeAlias = Annotated[date, BeforeValidator(_date)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CeilingsFile(_Model):
    """Epsilon that a device may spend in one period, and in its lifetime."""

    period: Micro
    lifetime: Micro


class RungFile(_Model):
    """A rung: epsilon, and the delay after which it is released."""

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


class BitAware(_Model):
    """A number as bits, of which some are sampled, or over which epsilon is split."""

    bit_aware: Literal["sampled", "split"]
    bits: StrictInt
    count: StrictInt | None = None

    @model_validator(mode="after")
    def _only_sampled(self) -> BitAware:
        if self.count is not None and self.bit_aware != "sampled":
            raise ValueError("has a count only where bits are sampled")
        return self

    @property
    def named(self) -> Named:
        """The mechanism that this stands for."""
        if self.count is not None:
            return Named("sampled_bits", {"bits": self.bits, "count": self.count})
        name = {"sampled": "sampled_bit", "split": "split_bits"}[self.bit_aware]
        return Named(name, {"bits": self.bits})


class SampledFile(_Model):
    """Some of a vector's coordinates are sampled, and a bit of each, or a threshold (0 bits)."""

    sampled: StrictInt
    bits: StrictInt = 0

    @property
    def named(self) -> Named:
        """The mechanism that this stands for."""
        return Named("sampled_vector", {"bits": self.bits, "sampled": self.sampled})


class Named(NamedTuple):
    """A mechanism, and the parameters of it that are written."""

    name: str
    parameters: Mapping[str, Parameter]

    @property
    def named(self) -> Named:
        """Itself."""
        return self


def _mechanism_of(kind: str) -> BeforeValidator:
    """Return what reads ``name`` or ``{name: {parameter: value}}``, of those a type may use."""

    def read(value: object) -> Named:
        name: object = value
        given: object = {}
        if isinstance(value, dict) and len(value) == 1:
            [(name, given)] = value.items()
        allowed = MECHANISMS[kind]
        if not isinstance(name, str) or name not in allowed:
            *most, last = map(repr, allowed)
            listed = f"{', '.join(most)} or {last}" if most else last
            raise ValueError(f"{name!r} must be {listed}")
        if not isinstance(given, dict):
            raise ValueError(f"{name}: its parameters must be a mapping")
        return Named(name, {str(key): _parameter(name, key, each) for key, each in given.items()})

    return BeforeValidator(read)


def _parameter(name: str, key: object, value: object) -> Parameter:
    if isinstance(value, list) and all(type(each) is int for each in value):
        return tuple(value)
    if isinstance(value, bool | int | str):
        return value
    raise ValueError(f"{name}: {key} must be a whole number, true or false, or a list of numbers")


class _MetricFile(_Model):
    window: Duration
    repeat: RepeatFile = RepeatFile(once="first")
    ladder: tuple[RungFile, ...]
    missing: StrictBool = False


class CategoryFile(_MetricFile):
    """One of a list of values."""

    type: Literal["category"]
    domain: tuple[Text, ...]
    outside: Text
    mechanism: Annotated[Named, _mechanism_of("category")] | None = None


class BooleanFile(_MetricFile):
    """True or false."""

    type: Literal["boolean"]
    mechanism: Annotated[Named, _mechanism_of("boolean")] | None = None


class StringFile(_MetricFile):
    """Text that need not be known in advance."""

    type: Literal["string"]
    bits: StrictInt = 128
    hashes: StrictInt = 2
    cohorts: StrictInt = 16
    candidates: StrictStr | None = None
    mechanism: Annotated[Named, _mechanism_of("string")] | None = None


def _form(value: object) -> str:
    """Return in which of its forms a mechanism is written."""
    if isinstance(value, BitAware) or (isinstance(value, dict) and "bit_aware" in value):
        return "bits"
    if isinstance(value, SampledFile) or (isinstance(value, dict) and "sampled" in value):
        return "sampled"
    return "named"


class NumberFile(_MetricFile):
    """A number in a range."""

    type: Literal["number"]
    range: tuple[Number, Number]
    unit: StrictStr | None = None
    outside: Literal["clip"]
    mechanism: (
        Annotated[
            Annotated[Named, _mechanism_of("number"), Tag("named")]
            | Annotated[BitAware, Tag("bits")],
            Discriminator(_form),
        ]
        | None
    ) = None


class OrdinalFile(_MetricFile):
    """One of a list of values in order, or of equidistant points of a range."""

    type: Literal["ordinal"]
    values: tuple[Text, ...] | None = None
    range: tuple[Number, Number] | None = None
    points: StrictInt | None = None
    unit: StrictStr | None = None
    outside: Text | None = None
    mechanism: Annotated[Named, _mechanism_of("ordinal")] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> OrdinalFile:
        if (self.values is None) == (self.range is None) or (
            (self.range is None) != (self.points is None)
        ):
            raise ValueError("must have either values, or range and points")
        return self


class SurveyFile(_MetricFile):
    """A question that is answered with yes or no."""

    type: Literal["survey"]
    question: Text
    mechanism: Annotated[Named, _mechanism_of("survey")] | None = None


class VectorFile(_MetricFile):
    """A fixed number of numbers in a range."""

    type: Literal["vector"]
    range: tuple[Number, Number]
    dimensions: StrictInt
    unit: StrictStr | None = None
    outside: Literal["clip"]
    mechanism: (
        Annotated[
            Annotated[Named, _mechanism_of("vector"), Tag("named")]
            | Annotated[SampledFile, Tag("sampled")],
            Discriminator(_form),
        ]
        | None
    ) = None


class TopItemFile(_MetricFile):
    """The most frequent of the items that are recorded in a period."""

    type: Literal["top_item"]
    domain: tuple[Text, ...]
    outside: Text
    clip: StrictInt
    mechanism: Annotated[Named, _mechanism_of("top_item")] | None = None


MetricFile: TypeAlias = (
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
    metrics: dict[Text, Annotated[MetricFile, Field(discriminator="type")]]


def read_plan(text: str) -> PlanFile:
    """Read the text of a plan.

    Raises
    ------
    PlanError
        It is not YAML, a key is unknown, missing or there twice, or a value has the wrong type.
    """
    try:
        document = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise PlanError(_yaml_problem(error)) from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the plan cannot be read as YAML: {error}") from None
    if not isinstance(document, dict):
        raise PlanError(
            "a plan is a YAML mapping with the keys " + ", ".join(PlanFile.model_fields)
        )
    try:
        return PlanFile.model_validate(document)
    except ValidationError as error:
        raise PlanError(explain(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML's safe subset, with exact decimals, and without keys that are there twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
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


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    what = getattr(error, "problem", None) or "not YAML"
    return f"the plan cannot be read as YAML: {where}{what}"
