"""One metric of a compiled plan: its fields, and the symbol that a value becomes.

Only a value of the wrong *type* is refused, never a value: whether a report is sent must not
depend on it. A number outside a range is clipped, a value that is not listed becomes what
``outside`` says. Needs the standard library alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from mechanisms.frozen import frozen, replace
from sotto.errors import PlanError, ValueTypeError, is_int, type_of, unboxed
from sotto.plan.fields import LARGEST, Fields, in_json, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, cast

    from mechanisms.base import Mechanism
    from mechanisms.items import Context
    from sotto.plan.fields import Wire
    from sotto.plan.measures import Measure
else:

    def cast(kind, value):
        return value


#: A parameter of a mechanism; a tuple is a list of whole numbers.
Parameter: TypeAlias = str | int | bool | tuple[int, ...]
#: The input of a mechanism: the number of a category, answer, point or item; a string's UTF-8; a
#: number scaled to ``[0, 1]``, None where it is missing; a vector of such numbers.
Symbol: TypeAlias = int | bytes | float | tuple[float, ...] | None

#: The types of metrics.
TYPES = ("category", "boolean", "string", "number", "ordinal", "survey", "vector", "top_item")
#: Fields that say in words, to people, what a metric is, by what consent it is collected, and which
#: instrument of the app feeds it.
WORDS = ("description", "purpose", "data_type", "group", "otel")
#: Stands for a missing string, as a candidate like any other.
MISSING_STRING = "\0"
#: Python types that each type of metric expects; an ordinal has those of its domain or range.
_EXPECTED = {
    "category": "str",
    "boolean": "bool",
    "string": "str",
    "number": "int or float",
    "survey": "bool",
    "top_item": "str",
}
_CONVERTED = ("its total_seconds()", "float() of it")
#: Attributes that say of a value of a wrong type what to pass in its place.
_REMEDIES = {
    "total_seconds": _CONVERTED[0],
    "as_tuple": _CONVERTED[1],
    "_name_": "its value",
    "__iter__": "single values, one by one",
}
#: Fields that a metric's document has in another form, or that follow from the plan.
_APART = ("index", "parameters", "kind", "limit", "horizon")


@frozen
class Level:
    """A level of a ladder: nominal micro-epsilon, and the delay in ms after which it is sent."""

    epsilon: int
    after: int


@frozen
class OtelSource:
    """The instrument of OpenTelemetry that feeds a metric (:mod:`clientsdk.otel`)."""

    instrument: str
    #: The attribute of its measurements that holds the value of a category.
    attribute: str | None = None


@frozen
class CompiledMetric:
    """One thing collected."""

    #: Its number in the plan, as on the wire.
    index: int
    name: Wire[str]
    #: One of :data:`TYPES`.
    type: Wire[str]
    #: The mechanism's name and parameters, sorted; see :attr:`spec`.
    parameters: Wire[tuple[tuple[str, Parameter], ...]]
    #: The values of a category, of an ordinal metric without a range, or a top item's items.
    domain: Wire[tuple[str, ...] | None]
    #: The fate of a value outside the domain or range: ``other`` or a value of the domain for a
    #: category or item, ``missing`` or a value of the domain for an ordinal metric, ``clip`` where
    #: there is a range.
    outside: Wire[str | None]
    #: Whether None may be recorded.
    missing: Wire[bool]
    #: Lowest and highest value of a number, of a vector's coordinates, of an ordinal's points.
    range: Wire[tuple[float, float] | None]
    unit: str | None
    #: Milliseconds over which an estimate is made.
    window: Wire[int]
    #: ``first`` or ``reservoir`` (one value a period), ``every`` (the first ``limit``) or
    #: ``constant`` (one value for the device's life).
    kind: str
    #: Values a period.
    limit: int
    #: Weakest first. The last level may be a response that never leaves the device; see
    #: :attr:`holds_response`.
    ladder: Wire[tuple[Level, ...]]
    #: Milliseconds after an event until which its reports are accepted: last delay, one budget
    #: period, grace.
    horizon: int
    #: The question of a survey.
    question: str | None = None
    #: A device answers in one of so many budget periods; 1 is every period.
    panel: Wire[int] = 1
    #: The collected value and its purpose, in words, None where the plan does not say.
    description: str | None = None
    purpose: str | None = None
    #: One of :data:`sotto.plan.checks.DATA_TYPES`, as application stores ask for it.
    data_type: str | None = None
    #: Which of the plan's groups a person agrees to with it.
    group: Wire[str | None] = None
    #: The largest share, on average, of a string metric's significant candidates that nobody has;
    #: None where that is a 5 % chance of any such name.
    false_discovery_rate: float | None = None
    otel: OtelSource | None = None
    #: The least whole number of each bin of an ordinal metric, whose names are its domain.
    edges: Wire[tuple[int, ...] | None] = None
    #: The device's own way to the value; None where the app records it.
    measure: Wire[Measure | None] = None
    #: Whether the device keeps true values in its file until they are drawn from.
    stored: bool = False

    @classmethod
    def of_document(cls, document: object, index: int, lateness: int) -> CompiledMetric:
        """Return the metric that a JSON document describes, its fields not yet checked.

        Reports of its last level may be ``lateness`` milliseconds late. Raises PlanError if a field
        is missing or has the wrong type.
        """
        name = Fields(document, f"metric {index + 1}").take("name", str)
        where = f"metric {name!r}"
        fields = Fields(document, where)
        repeat = Fields(fields.take("repeat", dict), f"{where}, repeat")
        kind = repeat.take("kind", str)
        ladder = tuple(
            Fields(item, f"{where}, level {number}").record(Level)
            for number, item in enumerate(fields.take("ladder", list), start=1)
        )
        limits = fields.items("range", (int, float))
        if limits is not None and len(limits) != 2:
            raise PlanError(f"{where}: range must be two numbers, low and high")
        mechanism = fields.take("mechanism", dict)
        otel = fields.take("otel", dict, None)
        measured, measure = fields.take("measure", dict, None), None
        if measured is not None:
            from sotto.plan.measures import Measure

            measure = Fields(measured, f"{where}, measure").record(Measure)
        return fields.record(
            cls,
            index=index,
            parameters=tuple((key, _parameter(where, key, mechanism)) for key in sorted(mechanism)),
            range=None if limits is None else (_float(limits[0]), _float(limits[1])),
            kind=kind,
            limit=repeat.take("limit", int),
            ladder=ladder,
            # A response that is not sent has the delay of the level before it.
            horizon=(ladder[-1].after if ladder else 0) + lateness,
            otel=None if otel is None else Fields(otel, f"{where}, otel").record(OtelSource),
            edges=fields.items("edges", (int,)),
            measure=measure,
        )

    def document(self) -> dict[str, object]:
        """Return the metric as it is in its plan's JSON document."""
        return {
            **written(self, *_APART),
            "mechanism": {key: in_json(value) for key, value in self.parameters},
            "repeat": {"kind": self.kind, "limit": self.limit},
        }

    @property
    def counted(self) -> CompiledMetric:
        """The metric without what does not change its counts: its place in the plan, its words."""
        return replace(self, index=0, false_discovery_rate=None, **dict.fromkeys(WORDS))

    @property
    def spec(self) -> dict[str, Parameter]:
        """The mechanism's name and parameters, as :func:`mechanisms.registry.build` takes them."""
        return dict(self.parameters)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism with its whole ladder, built at first use."""
        from mechanisms.registry import build

        return build(self.spec, [level.epsilon for level in self.ladder], self.name)

    def context(self, candidates: Sequence[str] = (), least: int = 1) -> Context:
        """Return what its mechanism must know to estimate, and to describe a payload.

        Candidates are those of a string metric, ``least`` is the plan's ``minimum_reports``.
        """
        from mechanisms.items import Context

        ordered = self.type == "ordinal"
        return Context(
            labels=self.labels,
            range=self.range or (0.0, 1.0),
            unit=self.unit,
            missing=self.missing,
            ordered=ordered,
            points=self.points if ordered and self.range is not None else None,
            candidates=candidates,
            missing_string=MISSING_STRING,
            limit=self.limit,
            least=least,
            false_discovery_rate=self.false_discovery_rate,
            funnel=self.measure is not None and self.measure.kind == "furthest",
        )

    @cached_property
    def holds_response(self) -> bool:
        """Whether the last level is a response that stays on the device, and others are drawn from.

        That is the permanent response of a constant metric, and the response of the measure
        ``used``.
        """
        return self.kind == "constant" or (self.measure is not None and self.measure.responds)

    @cached_property
    def sent(self) -> int:
        """The number of levels that leave the device: all but a response that stays there."""
        return len(self.ladder) - self.holds_response

    @cached_property
    def delays(self) -> tuple[int, ...]:
        """Milliseconds after which each level that is sent is released, weakest first."""
        return tuple(level.after for level in self.ladder[: self.sent])

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """Micro-epsilon that a chain costs up to each level that is sent, weakest first."""
        return tuple(self.mechanism.certified(level) for level in range(self.sent))

    @cached_property
    def payload_width(self) -> int:
        """Bytes of a payload."""
        return self.mechanism.payload_width

    @cached_property
    def cost(self) -> int:
        """Micro-epsilon that this metric can spend in a period: limit times the last level sent."""
        return self.limit * self.mechanism.certified(self.sent - 1)

    @cached_property
    def permanent(self) -> int:
        """Micro-epsilon that it costs once in a device's life, instead of in every period.

        All periods of a constant metric together cost no more than its permanent response, since
        they are drawn from that alone; 0 for all others.
        """
        return self.mechanism.certified(len(self.ladder) - 1) if self.kind == "constant" else 0

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the symbols, by number; empty for a string, a number and a vector."""
        gone = ("missing",) if self.missing else ()
        if self.type == "boolean":
            return ("false", "true", *gone)
        if self.type == "survey":
            return ("no", "yes")
        if self.type == "ordinal" and self.range is not None:
            return tuple(f"{point:.12g}" for point in self.points) + gone
        if self.domain is None:
            return ()
        other = self.type != "ordinal" and self.outside not in self.domain
        return self.domain + (("other",) if other else ()) + gone

    @property
    def points(self) -> tuple[float, ...]:
        """The equidistant points of an ordinal metric that has a range."""
        low, high = cast(tuple[float, float], self.range)
        steps = cast(int, self.spec["domain_size"]) - self.missing - 1
        return tuple(low + (high - low) * (step / max(steps, 1)) for step in range(steps + 1))

    @cached_property
    def symbols(self) -> dict[str, int]:
        """The number of each listed value, and of ``missing``."""
        listed = {label: number for number, label in enumerate(self.domain or ())}
        if self.missing and self.outside == "missing":
            listed.setdefault("missing", len(listed))
        return listed

    @cached_property
    def plain(self) -> frozenset[object]:
        """Types of which every value has a symbol, whatever it is: no proof need be made."""
        if self.type in ("boolean", "survey"):
            return frozenset({bool})
        if self.numeric:
            return frozenset({int, float})
        return frozenset() if self.type == "vector" else frozenset({str})

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers, one a recording."""
        ordered = self.type == "ordinal" and (self.range is not None or self.edges is not None)
        return self.type == "number" or ordered

    def encode(self, value: object) -> Symbol:
        """Return the symbol of a value: what the mechanism randomizes.

        Only a wrong type is refused, never a value: numbers are clipped to the range, values
        that are not listed become what ``outside`` says. None and NaN are missing if missing values
        are allowed; where they are not, NaN counts as the lowest value. The symbol of an ordinal
        metric with a range is the nearest point; of a top item it is that of one event, of which
        the device counts a period's. Raises ValueTypeError, whose message never contains the value,
        if the type is wrong, or the length of a vector.

        Privacy
        -------
        Whether a report is sent must not depend on the value; so this is total on each type.
        """
        if value is None and self.missing:
            return self._missing_symbol
        if self.type == "vector":
            return self._vector(value)
        if self.type == "ordinal":
            return self._ordinal(value)
        if self.type in ("category", "top_item") and isinstance(value, str):
            return self._listed(value)
        if self.type in ("boolean", "survey") and isinstance(truth := unboxed(value), bool):
            return int(truth)
        if self.type == "string" and isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if self.type == "number" and _is_number(value):
            scaled = self._scaled(cast(float, value))
            return None if scaled is None and self.missing else scaled or 0.0
        raise self._refused(_EXPECTED[self.type], value)

    def amount(self, value: Any) -> float | None:
        """Return what a value adds to the measure of this metric, None for a missing one.

        So many occurrences, the number of a step, or a number. Raises ValueTypeError as
        :meth:`encode` does.
        """
        measure = self.measure
        assert measure is not None
        if measure.kind in ("count", "days", "used"):
            times: Any = unboxed(value)
            if not is_int(times):
                raise ValueTypeError(f"{measure.of!r} is counted with an int; got {type_of(value)}")
            return cast(int, max(times, 0))
        symbol = self.encode(value)
        if measure.kind == "furthest":
            return cast(int, symbol)
        if value is None:
            return None
        number = float(bool(unboxed(value))) if self.type == "boolean" else self.real(value)
        return None if number != number else number

    def within(self, value: object) -> bool:
        """Whether a value is one that the plan names or whose range it lies in, for tests of apps.

        Any other value becomes, by :meth:`encode`, what ``outside`` says. Raises ValueTypeError as
        that does.
        """
        self.encode(value)
        if value is None:
            return True
        if self.edges is not None:
            return cast(float, value) >= self.edges[0] or self._is_gone(value)
        if self.domain is not None:
            return value in self.domain or value == self.outside
        if self.range is None:
            return True
        low, high = self.range
        numbers = cast(Sequence[float], value if self.type == "vector" else (value,))
        return all(low <= number <= high or self._is_gone(number) for number in numbers)

    def _is_gone(self, number: Any) -> bool:
        """Whether a number stands for a missing value."""
        return self.missing and bool(number != number)

    @property
    def _missing_symbol(self) -> Symbol:
        if self.type == "number":
            return None
        return MISSING_STRING.encode() if self.type == "string" else len(self.labels) - 1

    def _listed(self, value: str) -> int:
        symbol = self.symbols.get(value)
        if symbol is None:
            symbol = self.symbols.get(str(self.outside), len(self.symbols))
        return symbol

    def _ordinal(self, value: object) -> int:
        """Return the number of a listed value, of a bin, or of the nearest point (of two, the lower
        one).
        """
        if self.edges is not None and _is_number(value):
            number = self.real(value)
            if number != number:
                return len(self.edges) if self.missing else 0
            return max(bisect_right(self.edges, number) - 1, 0)
        if self.domain is not None and self.edges is None:
            if not isinstance(value, str):
                raise self._refused("str", value)
            # A value that is not listed is missing, in a plan that names no other place for it.
            return self._listed(value)
        if not _is_number(value):
            raise self._refused("int or float", value)
        last = len(self.labels) - self.missing - 1
        scaled = self._scaled(cast(float, value))
        if scaled is None:
            return last + 1 if self.missing else 0
        return math.ceil(scaled * last - 0.5)

    def _vector(self, value: object) -> tuple[float, ...]:
        dimensions = self.spec["dimensions"]
        expected = f"a sequence of {dimensions} numbers"
        numbers = value
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            # The method of numpy's arrays and others like them, whether or not numpy is installed.
            listed = cast(Callable[[], object] | None, getattr(value, "tolist", None))
            numbers = listed() if callable(listed) else None
        if not (isinstance(numbers, Sequence) and all(map(_is_number, numbers))):
            raise self._refused(expected, value, "numbers alone, in one row")
        if len(numbers) != dimensions:
            raise ValueTypeError(f"metric {self.name!r} expects {expected}; got {len(numbers)}")
        # Not a number counts as the lowest.
        return tuple([self._scaled(number) or 0.0 for number in numbers])

    def real(self, value: Any) -> float:
        """Return a number as a float; ValueTypeError for what float() does not take."""
        try:
            # Narrow numpy floats would overflow, and warn, for some values and not for others.
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
        except (TypeError, ValueError, ArithmeticError):
            # An error of an app's own type of number may say which number it is.
            raise self._refused("a number that float() takes", value) from None

    def _scaled(self, value: float) -> float | None:
        """Return a number clipped to the range and scaled to [0, 1]; None for NaN."""
        assert self.range is not None
        low, high = self.range
        value = self.real(value)
        if value >= high:
            return 1.0
        if value > low:
            return (value - low) / (high - low)
        # NaN compares false with everything.
        return 0.0 if value <= low else None

    def _refused(self, expected: str, value: object, remedy: str = "") -> ValueTypeError:
        """Return the error of a wrong type: what was expected, what came, and what to pass."""
        if self.missing:
            expected = f"{expected.replace(' or ', ', ')} or None"
        plain = {"b": "True or False", "s": "a text"}.get(expected[0], "a number")
        found = [how for mark, how in _REMEDIES.items() if hasattr(value, mark)]
        if plain != "a number":
            found = [how for how in found if how not in _CONVERTED]
        if value is None:
            never = self.type in ("survey", "top_item")
            found = ["a value" if never else "a value, or say missing: true in the plan"]
        elif isinstance(value, str | bytes):
            found = []
        remedy = remedy or (found or [plain])[0]
        if self.unit and remedy in (plain, *_CONVERTED):
            remedy += f"{', converted to' if remedy == _CONVERTED[0] else ' in'} {self.unit}"
        got = f"metric {self.name!r} expects {expected}; got {type_of(value)}: pass {remedy}"
        return ValueTypeError(got)


def _is_number(value: object) -> bool:
    """Whether a value is a real number; a bool is none."""
    if isinstance(value, float | int):
        return not isinstance(value, bool)
    from numbers import Real

    return isinstance(value, Real)


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _parameter(where: str, key: str, mechanism: Mapping[str, object]) -> Parameter:
    value = mechanism[key]
    if isinstance(value, list) and all(
        type(each) is int and -LARGEST <= each <= LARGEST for each in value
    ):
        return tuple(value)
    if isinstance(value, str) or (isinstance(value, int) and -LARGEST <= value <= LARGEST):
        return value
    raise PlanError(f"{where}: mechanism parameter {key!r} has the wrong type")
