"""The plan as it is written: YAML, its keys and types, before anything is chosen or compiled.

What a value may be *in itself* is checked here; what the values must be *together* is checked
once for all plans, compiled ones too, by :mod:`sotto.checks`.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeAlias

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
    """How many values a period: one (the first, or one at random), or the first N."""

    once: Literal["first", "reservoir"] | None = None
    every: StrictInt | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> RepeatFile:
        if (self.once is None) == (self.every is None):
            raise ValueError("must be {once: first}, {once: reservoir} or {every: N}")
        return self

    @property
    def kind(self) -> str:
        """``first``, ``reservoir`` or ``every``."""
        return self.once or "every"

    @property
    def limit(self) -> int:
        """Values a period."""
        return 1 if self.every is None else self.every


class BitAware(_Model):
    """A number as bits, of which one is sampled, or over which epsilon is split."""

    bit_aware: Literal["sampled", "split"]
    bits: StrictInt


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
    mechanism: Literal["grr", "sue", "oue"] | None = None


class BooleanFile(_MetricFile):
    """True or false."""

    type: Literal["boolean"]
    mechanism: Literal["grr", "sue", "oue"] | None = None


class StringFile(_MetricFile):
    """Text that need not be known in advance."""

    type: Literal["string"]
    bits: StrictInt = 128
    hashes: StrictInt = 2
    cohorts: StrictInt = 16
    candidates: StrictStr | None = None
    mechanism: Literal["rappor"] | None = None


def _mechanism_form(value: object) -> str:
    return "bits" if isinstance(value, dict | BitAware) else "named"


class NumberFile(_MetricFile):
    """A number in a range."""

    type: Literal["number"]
    range: tuple[Number, Number]
    unit: StrictStr | None = None
    outside: Literal["clip"]
    mechanism: (
        Annotated[
            Annotated[Literal["threshold"], Tag("named")] | Annotated[BitAware, Tag("bits")],
            Discriminator(_mechanism_form),
        ]
        | None
    ) = None


MetricFile: TypeAlias = CategoryFile | BooleanFile | StringFile | NumberFile


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
