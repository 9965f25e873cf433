"""The compiled plan: what devices and aggregators read, and what the fingerprint identifies.

A compiled plan is canonical JSON (``docs/formats.md``): times are integer milliseconds, privacy
amounts integer micro-epsilon, and every choice that the plan left open has been made. It is read
with the standard library alone, and refused unless its mechanisms, ladders and ceilings can be
honoured (:mod:`sotto.checks`). The *fingerprint* is the SHA-256 of its bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, TypeAlias, cast

from sotto.errors import PlanError, UnknownMetricError, ValueTypeError

if TYPE_CHECKING:
    from mechanisms.ladders import LadderedMechanism

#: What a mechanism randomizes: a category's number, a string's UTF-8, a number scaled to
#: ``[0, 1]``; None where a number is missing.
Symbol: TypeAlias = int | bytes | float | None

FORMAT = 1
#: Stands for a missing string, as a candidate like any other.
MISSING_STRING = "\0"


@dataclass(frozen=True)
class Ceilings:
    """What a device may spend, in micro-epsilon, in one budget period and in its lifetime."""

    period: int
    lifetime: int


@dataclass(frozen=True)
class Rung:
    """A step of a ladder: nominal micro-epsilon, and the delay in ms after which it is sent."""

    epsilon: int
    after: int


@dataclass(frozen=True)
class CompiledMetric:
    """One thing collected.

    Attributes
    ----------
    index : int
        Its number in the plan, as on the wire.
    name, type : str
        The type is ``category``, ``boolean``, ``string`` or ``number``.
    parameters : tuple of (str, value)
        The mechanism's name and parameters, sorted; see :attr:`spec`.
    domain : tuple of str, or None
        The values of a category.
    outside : str or None
        What becomes of a value outside the domain or range: ``other`` or a value of the domain
        for a category, ``clip`` for a number.
    missing : bool
        Whether None may be recorded.
    range : (float, float) or None
        Lowest and highest value of a number.
    unit : str or None
    window : int
        Milliseconds over which an estimate is made.
    kind : str
        ``first`` or ``reservoir`` (one value a period) or ``every`` (the first ``limit``).
    limit : int
        Values a period.
    ladder : tuple of Rung
        Weakest first.
    horizon : int
        Milliseconds after an event until which its reports are accepted: last delay, one budget
        period, grace.
    """

    index: int
    name: str
    type: str
    parameters: tuple[tuple[str, str | int | bool], ...]
    domain: tuple[str, ...] | None
    outside: str | None
    missing: bool
    range: tuple[float, float] | None
    unit: str | None
    window: int
    kind: str
    limit: int
    ladder: tuple[Rung, ...]
    horizon: int

    @property
    def spec(self) -> dict[str, str | int | bool]:
        """The mechanism's name and parameters, as :func:`mechanisms.ladders.build` takes them."""
        return dict(self.parameters)

    @cached_property
    def mechanism(self) -> LadderedMechanism:
        """The mechanism with its whole ladder, built at first use."""
        from mechanisms.ladders import build

        return build(self.spec, [rung.epsilon for rung in self.ladder], self.name)

    @property
    def delays(self) -> tuple[int, ...]:
        """Milliseconds after which each rung is released, weakest first."""
        return tuple(rung.after for rung in self.ladder)

    @cached_property
    def cost(self) -> int:
        """Micro-epsilon that this metric can spend in a period: limit times the last rung's."""
        return self.limit * self.mechanism.certified(len(self.ladder) - 1)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The symbols of a category or boolean, by number; empty for other types."""
        if self.type == "boolean":
            return ("false", "true", "missing")[: 2 + self.missing]
        if self.domain is None:
            return ()
        other = ("other",) if self.outside not in self.domain else ()
        return self.domain + other + (("missing",) if self.missing else ())

    @cached_property
    def _symbols(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.domain or ())}

    def window_of(self, time: int) -> int:
        """Return the number of the window that contains ``time`` (ms)."""
        return time // self.window

    def encode(self, value: object) -> Symbol:
        """Return the symbol of a value: what the mechanism randomizes.

        Only a wrong type is refused, never a value: numbers are clipped to the range, categories
        outside the domain become what ``outside`` says. Where missing values are allowed, None
        and NaN are missing; where they are not, NaN counts as the lowest value.

        Raises
        ------
        ValueTypeError
            The value has the wrong type. The message never contains the value.

        Privacy
        -------
        Whether a report is sent must not depend on the value; so this is total on each type.
        """
        if value is None and self.missing:
            return self._missing_symbol()
        if self.type == "category" and isinstance(value, str):
            return self._encode_category(value)
        if self.type == "boolean" and isinstance(value, bool):
            return int(value)
        if self.type == "string" and isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
        if self.type == "number" and isinstance(value, Real) and not isinstance(value, bool):
            return self._encode_number(cast(float, value))
        wanted = {"category": "str", "boolean": "bool", "string": "str", "number": "int or float"}
        raise ValueTypeError(
            f"metric {self.name!r}: {wanted[self.type]}{' or None' if self.missing else ''} "
            f"wanted, not {type(value).__name__}"
        )

    def _missing_symbol(self) -> Symbol:
        if self.type == "number":
            return None
        if self.type == "string":
            return MISSING_STRING.encode()
        return len(self.labels) - 1

    def _encode_category(self, value: str) -> int:
        symbol = self._symbols.get(value)
        if symbol is None:
            symbol = self._symbols.get(str(self.outside), len(self._symbols))
        return symbol

    def _encode_number(self, value: float) -> float | None:
        assert self.range is not None
        low, high = self.range
        try:
            # Narrow numpy floats would overflow, and warn, for some values and not for others.
            value = float(value)
        except OverflowError:
            value = math.inf if value > 0 else -math.inf
        if value >= high:
            return 1.0
        if value > low:
            return (value - low) / (high - low)
        # NaN compares false with everything.
        return None if self.missing and not value <= low else 0.0


@dataclass(frozen=True)
class CompiledPlan:
    """A plan as both sides use it; see the module. Build it with :meth:`from_json`.

    Attributes
    ----------
    collector, plan, owner : str
    version : int
    expires : int
        Milliseconds since the epoch from which on nothing is recorded or newly released.
    period, resolution, grace, retention : int
        Milliseconds.
    shards : int
    ceilings : Ceilings
    metrics : tuple of CompiledMetric
    """

    collector: str
    plan: str
    version: int
    owner: str
    expires: int
    period: int
    resolution: int
    grace: int
    retention: int
    shards: int
    ceilings: Ceilings
    metrics: tuple[CompiledMetric, ...]

    @classmethod
    def from_json(cls, data: bytes) -> CompiledPlan:
        """Read a compiled plan and check that it can be honoured.

        Raises
        ------
        PlanError
            The bytes are not a compiled plan in canonical form, or its mechanisms, ladders and
            ceilings cannot be honoured.
        """
        from sotto.checks import check
        from sotto.documents import plan_of

        try:
            document = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise PlanError("the compiled plan is not JSON in UTF-8") from None
        plan = plan_of(document)
        check(plan)
        if plan.to_json() != data:
            raise PlanError(
                "the compiled plan is not in canonical form, so its fingerprint would not be that "
                "of its bytes: compile the plan again, and do not edit or reformat what comes out"
            )
        return plan

    def to_json(self) -> bytes:
        """Return the canonical bytes."""
        from sotto.documents import document_of

        return json.dumps(
            document_of(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode("utf-8")

    @cached_property
    def fingerprint(self) -> bytes:
        """The SHA-256 of the canonical bytes: 32 bytes that identify the plan on the wire."""
        return hashlib.sha256(self.to_json()).digest()

    @cached_property
    def _by_name(self) -> dict[str, CompiledMetric]:
        return {metric.name: metric for metric in self.metrics}

    def metric(self, name: str) -> CompiledMetric:
        """Return the metric of that name.

        Raises
        ------
        UnknownMetricError
            The plan has none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownMetricError(
                f"plan {self.plan!r} has no metric {name!r}; it has {', '.join(self._by_name)}"
            ) from None

    @cached_property
    def horizon(self) -> int:
        """Milliseconds after an event until which reports of it are accepted, at the longest."""
        return max(metric.horizon for metric in self.metrics)

    @cached_property
    def cost(self) -> int:
        """Micro-epsilon that all metrics together can spend in a period."""
        return sum(metric.cost for metric in self.metrics)

    def period_of(self, time: int) -> int:
        """Return the number of the budget period that contains ``time`` (ms)."""
        return time // self.period

    def truncate(self, time: int) -> int:
        """Return ``time`` (ms) truncated, toward the past, to the plan's resolution."""
        return time - time % self.resolution

    def expired(self, time: int) -> bool:
        """Whether nothing may be recorded or newly released any more at ``time`` (ms)."""
        return time >= self.expires
