"""The compiled plan: what devices and aggregators read, and how it is named on the wire.

A compiled plan is canonical JSON (``docs/formats.md``): times are integer milliseconds, privacy
amounts integer micro-epsilon, and every choice that the plan left open has been made. It is read
with the standard library alone, and refused unless its mechanisms, ladders and ceilings can be
honoured (:mod:`sotto.plan.checks`). The *fingerprint*, which is in every message, covers only what
decoding and counting need; the *digest* covers all bytes and never leaves a device.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING

from mechanisms.digests import sha256
from mechanisms.frozen import frozen
from sotto.errors import ParameterError, PlanError, UnknownMetricError
from sotto.plan.serialization import MINIMUM_REPORTS
from sotto.plan.types import Parameter
from sotto.plan.values import MISSING_STRING, Symbol, labels_of, plain_types, points_of, symbol_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mechanisms.base import Mechanism
    from mechanisms.items import Context

#: In front of what the fingerprint is the hash of.
_FINGERPRINT = b"sotto.fingerprint\0"


@frozen
class Ceilings:
    """What a device may spend, in micro-epsilon, in one budget period and in its lifetime."""

    period: int
    lifetime: int

    @classmethod
    def of_epsilon(cls, period: float, lifetime: float) -> Ceilings:
        """Return ceilings given in epsilon; digits beyond the sixth decimal are dropped.

        Raises
        ------
        ParameterError
            One of them is not a positive number.

        Examples
        --------
        >>> Ceilings.of_epsilon(0.3, 60)
        Ceilings(period=300000, lifetime=60000000)
        """
        from fractions import Fraction

        for epsilon in (period, lifetime):
            if not 0 < epsilon < float("inf"):
                raise ParameterError(f"ceilings: {epsilon} must be an epsilon above 0")
        return cls(*(int(Fraction(repr(float(each))) * 1_000_000) for each in (period, lifetime)))


@frozen
class Rung:
    """A step of a ladder: nominal micro-epsilon, and the delay in ms after which it is sent."""

    epsilon: int
    after: int


@frozen
class CompiledMetric:
    """One thing collected.

    Attributes
    ----------
    index : int
        Its number in the plan, as on the wire.
    name, type : str
        The type is one of :data:`sotto.plan.types.MECHANISMS`.
    parameters : tuple of (str, value)
        The mechanism's name and parameters, sorted; see :attr:`spec`.
    domain : tuple of str, or None
        The values of a category, of an ordinal metric without a range, or a top item's items.
    outside : str or None
        What becomes of a value outside the domain or range: ``other`` or a value of the domain
        for a category or item, ``missing`` or a value of the domain for an ordinal metric,
        ``clip`` where there is a range.
    missing : bool
        Whether None may be recorded.
    range : (float, float) or None
        Lowest and highest value of a number, of a vector's coordinates, of an ordinal's points.
    unit : str or None
    window : int
        Milliseconds over which an estimate is made.
    kind : str
        ``first`` or ``reservoir`` (one value a period), ``every`` (the first ``limit``) or
        ``constant`` (one value for the device's life).
    limit : int
        Values a period.
    ladder : tuple of Rung
        Weakest first. The last rung of a constant metric is its permanent response, which never
        leaves the device.
    horizon : int
        Milliseconds after an event until which its reports are accepted: last delay, one budget
        period, grace.
    question : str or None
        Of a survey.
    panel : int
        A device answers in one of so many budget periods; 1 is every period.
    """

    index: int
    name: str
    type: str
    parameters: tuple[tuple[str, Parameter], ...]
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
    question: str | None = None
    panel: int = 1

    @property
    def spec(self) -> dict[str, Parameter]:
        """The mechanism's name and parameters, as :func:`mechanisms.registry.build` takes them."""
        return dict(self.parameters)

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism with its whole ladder, built at first use."""
        from mechanisms.registry import build

        return build(self.spec, [rung.epsilon for rung in self.ladder], self.name)

    def context(self, candidates: Sequence[str] = (), least: int = 1) -> Context:
        """Return what its mechanism must know to estimate, and to describe a payload.

        Parameters
        ----------
        candidates : sequence of str
            Of a string metric.
        least : int
            The plan's ``minimum_reports``.
        """
        from mechanisms.items import Context

        ordered = self.type == "ordinal"
        return Context(
            labels=self.labels,
            range=self.range or (0.0, 1.0),
            unit=self.unit,
            missing=self.missing,
            ordered=ordered,
            points=points_of(self) if ordered and self.range is not None else None,
            candidates=candidates,
            missing_string=MISSING_STRING,
            limit=self.limit,
            least=least,
        )

    @property
    def sent(self) -> int:
        """The number of rungs that leave the device: all but a permanent response."""
        return len(self.ladder) - (self.kind == "constant")

    @property
    def delays(self) -> tuple[int, ...]:
        """Milliseconds after which each rung that is sent is released, weakest first."""
        return tuple(rung.after for rung in self.ladder[: self.sent])

    @cached_property
    def cost(self) -> int:
        """Micro-epsilon that this metric can spend in a period: limit times the last rung sent."""
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
        return labels_of(self)

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
        return plain_types(self)

    def encode(self, value: object) -> Symbol:
        """Return the symbol of a value: what the mechanism randomizes.

        Only a wrong type is refused, never a value: numbers are clipped to the range, values
        that are not listed become what ``outside`` says. Where missing values are allowed, None
        and NaN are missing; where they are not, NaN counts as the lowest value. Of an ordinal
        metric with a range the symbol is the nearest point; of a top item it is that of one
        event, of which the device counts a period's.

        Raises
        ------
        ValueTypeError
            The value has the wrong type (of a vector also the wrong length). The message never
            contains the value.

        Privacy
        -------
        Whether a report is sent must not depend on the value; so this is total on each type.
        """
        return symbol_of(self, value)


@frozen
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
    minimum_reports : int
        An estimate of fewer reports is withheld. Devices do not use it.
    authentication : str
        ``required`` if messages are signed, else ``none``.
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
    minimum_reports: int = MINIMUM_REPORTS
    authentication: str = "none"

    @classmethod
    def from_json(cls, data: bytes) -> CompiledPlan:
        """Read a compiled plan and check that it can be honoured.

        Raises
        ------
        PlanError
            The bytes are not a compiled plan in canonical form, or its mechanisms, ladders and
            ceilings cannot be honoured.
        """
        from sotto.plan.checks import check
        from sotto.plan.serialization import plan_of

        try:
            document = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise PlanError(
                "the compiled plan is not JSON in UTF-8, which sotto plan compile writes"
            ) from None
        plan = plan_of(document)
        check(plan)
        if plan.to_json() != data:
            raise PlanError(
                "the compiled plan is not in canonical form: compile the plan again, and do not "
                "edit or reformat what comes out"
            )
        return plan

    def to_json(self) -> bytes:
        """Return the canonical bytes."""
        from sotto.plan.serialization import canonical, document_of

        return canonical(document_of(self))

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that name the plan on the wire.

        Privacy
        -------
        They are in every message, so what they cover could tell devices apart that were given
        plans that differ. Plans that differ only in owner, dates or texts have one fingerprint.
        """
        from sotto.plan.serialization import canonical, wire_document_of

        return sha256(_FINGERPRINT + canonical(wire_document_of(self)))

    @property
    def fingerprint_hex(self) -> str:
        """The fingerprint as 64 hexadecimal digits, as people write it and apps pin it."""
        return self.fingerprint.hex()

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of the canonical bytes: 32 bytes that no other document has."""
        return sha256(self.to_json())

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

    @property
    def signed(self) -> bool:
        """Whether messages are signed (:mod:`sotto.wire.signatures`)."""
        return self.authentication == "required"

    @cached_property
    def horizon(self) -> int:
        """Milliseconds after an event until which reports of it are accepted, at the longest."""
        return max(metric.horizon for metric in self.metrics)

    @cached_property
    def cost(self) -> int:
        """Micro-epsilon that all metrics together can spend in a period."""
        return sum(metric.cost for metric in self.metrics)

    @cached_property
    def permanent(self) -> int:
        """Micro-epsilon that constant metrics cost once in a device's life."""
        return sum(metric.permanent for metric in self.metrics)

    @cached_property
    def recurring(self) -> int:
        """Micro-epsilon that a full period takes from the lifetime's: without constant metrics."""
        return sum(metric.cost for metric in self.metrics if not metric.permanent)

    def period_of(self, time: int) -> int:
        """Return the number of the budget period that contains ``time`` (ms)."""
        return time // self.period

    def periods_in(self, metric: CompiledMetric) -> int:
        """Return of how many budget periods a metric's window has a part, at most."""
        if self.period % metric.window == 0:
            return 1
        return -(-metric.window // self.period) + (metric.window % self.period != 0)

    def truncate(self, time: int) -> int:
        """Return ``time`` (ms) truncated, toward the past, to the plan's resolution."""
        return time - time % self.resolution

    def expired(self, time: int) -> bool:
        """Whether nothing may be recorded or newly released any more at ``time`` (ms)."""
        return time >= self.expires
