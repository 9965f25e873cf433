"""Metrics as they are written in a plan file, by type, and their mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from sotto.plan.fields import Duration, Micro, Model, Number, Panel, Text, shown
from sotto.plan.types import MECHANISMS, Parameter


class RungFile(Model):
    """A rung: epsilon, and the delay after which it is released."""

    epsilon: Micro
    after: Duration = 0


class RepeatFile(Model):
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


class BitAware(Model):
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


class SampledFile(Model):
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
            raise ValueError(f"{shown(name)} must be {listed}")
        if not isinstance(given, dict):
            raise ValueError(f"{name}: its parameters must be a mapping, not {shown(given)}")
        if "name" in given:
            raise ValueError(f"{name}: a mechanism's name is no parameter of it")
        return Named(name, {str(key): _parameter(name, key, each) for key, each in given.items()})

    return BeforeValidator(read)


def _parameter(name: str, key: object, value: object) -> Parameter:
    if isinstance(value, list) and all(type(each) is int for each in value):
        return tuple(value)
    if isinstance(value, bool | int | str):
        return value
    raise ValueError(
        f"{name}: {key} {shown(value)} must be a whole number, true or false, or a list of numbers"
    )


class _MetricFile(Model):
    window: Duration
    repeat: RepeatFile = RepeatFile(once="first")
    ladder: tuple[RungFile, ...]
    missing: StrictBool = False
    panel: Panel | None = None


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
