"""The compiled plan: what devices and aggregators read, and how it is named on the wire.

A compiled plan is canonical JSON (``docs/spec/formats.md``): times are integer milliseconds,
privacy amounts integer micro-epsilon, and every choice that the plan left open has been made. It is
read with the standard library alone, and refused unless its mechanisms, ladders and ceilings can be
honoured. The *fingerprint*, which is in every message, covers only what decoding and counting need;
the *digest* covers all bytes and never leaves a device.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from math import prod

from mechanisms.digests import sha256
from mechanisms.frozen import frozen
from sotto.clocks import day
from sotto.errors import (
    PlanError,
    UnknownMetricError,
    ValueTypeError,
    did_you_mean,
    type_of,
    wrong_type,
)
from sotto.plan.fields import Fields, in_json, on_wire, written
from sotto.plan.metric import CompiledMetric as CompiledMetric
from sotto.plan.metric import Level as Level

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sotto.plan.fields import Wire
    from sotto.plan.segments import Attribute, Experiment, PlannedDecision

#: The format of compiled plans.
FORMAT = 2
#: The default minimum of an estimate's reports.
MINIMUM_REPORTS = 20
#: Looks at an experiment, at most.
MAX_LOOKS = 20
#: For how long before its end a plan is warned of (ms).
ENDS_SOON = 90 * 86_400_000
#: Prefix of the bytes whose hash is the fingerprint.
_FINGERPRINT = b"sotto.fingerprint\0"


@frozen
class Ceilings:
    """The most that a device may spend in a budget period and in its lifetime, in micro-epsilon."""

    period: int
    lifetime: int


@frozen
class CompiledPlan:
    """A plan as both sides use it; see the module. Build it with :meth:`from_json`."""

    collector: Wire[str]
    plan: Wire[str]
    version: Wire[int]
    owner: str
    #: Milliseconds since the epoch from which on nothing is recorded or newly released.
    expires: int
    #: Durations, in milliseconds.
    period: Wire[int]
    resolution: Wire[int]
    grace: Wire[int]
    retention: int
    shards: Wire[int]
    ceilings: Wire[Ceilings]
    metrics: tuple[CompiledMetric, ...]
    #: An estimate of fewer reports is withheld. Devices do not use it.
    minimum_reports: int = MINIMUM_REPORTS
    #: ``required`` if messages are signed, else ``none``.
    authentication: Wire[str] = "none"
    #: The collected values and their purpose, in words.
    description: str | None = None
    purpose: str | None = None
    #: Names of the groups that a person may agree to one by one, sorted, and what is said of each.
    groups: tuple[tuple[str, str], ...] = ()
    #: Public attributes by which results are broken down, and their values, without the last ones
    #: that are implied.
    segments: Wire[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    experiment: Wire[Experiment | None] = None
    #: The planned end of the experiment. Devices do not use it.
    decision: PlannedDecision | None = None

    @classmethod
    def from_json(cls, data: bytes, name: str = "the plan") -> CompiledPlan:
        """Read a compiled plan and check that it can be honoured.

        Raises PlanError, which calls the plan by ``name``, if the bytes are not a compiled plan in
        canonical form, or its mechanisms, ladders and ceilings cannot be honoured.
        """
        plan = read_without_mechanisms(data, name)
        check(plan)
        return plan

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> CompiledPlan:
        """Read a compiled plan's file; see :meth:`from_json`."""
        if not isinstance(path, str | os.PathLike):
            raise wrong_type("path", "that of a compiled plan", path)
        # pathlib would make the start of every app slower.
        with open(path, "rb") as file:
            return cls.from_json(file.read(), repr(os.fspath(path)))

    @classmethod
    def of_document(cls, document: object) -> CompiledPlan:
        """Return the plan that a JSON document describes, its fields not yet checked.

        Raises PlanError if one is missing or has the wrong type, or the format is another.
        """
        fields = Fields(document, "the compiled plan")
        if (found := fields.take("format", int)) != FORMAT:
            raise PlanError(
                f"the compiled plan has format {found}; this version reads {FORMAT}: compile its "
                "text again, with sotto plan compile"
            )
        lateness = fields.take("period", int) + fields.take("grace", int)
        groups = Fields(fields.take("groups", dict, {}), "groups")
        arms, planned = (fields.take(name, dict, None) for name in ("experiment", "decision"))
        experiment: object = arms
        decision: object = planned
        if arms is not None or planned:
            from sotto.plan.segments import Experiment, PlannedDecision

            experiment = None if arms is None else Fields(arms, "experiment").record(Experiment)
            decision = planned and Fields(planned, "decision").record(PlannedDecision)
        return fields.record(
            cls,
            ceilings=Fields(fields.take("ceilings", dict), "ceilings").record(Ceilings),
            groups=tuple((name, groups.take(name, str)) for name in groups.names()),
            segments=tuple(map(_segment, fields.take("segments", list, []))),
            experiment=experiment,
            decision=decision,
            metrics=tuple(
                CompiledMetric.of_document(item, index, lateness)
                for index, item in enumerate(fields.take("metrics", list))
            ),
        )

    def document(self) -> dict[str, Any]:
        """Return the plan as a JSON document (``docs/spec/formats.md``)."""
        return {
            **written(self, "metrics", "groups", "segments"),
            "format": FORMAT,
            "metrics": [metric.document() for metric in self.metrics],
            **({"groups": dict(self.groups)} if self.groups else {}),
            **self.attributes_document(),
        }

    def attributes_document(self) -> dict[str, Any]:
        """Return segments and experiment as a JSON document has them; nothing where none are."""
        segments = [{"name": name, "values": list(values)} for name, values in self.segments]
        found = {"segments": segments, "experiment": in_json(self.experiment)}
        return {name: value for name, value in found.items() if value}

    def to_json(self) -> bytes:
        """Return the canonical bytes."""
        return self._canonical

    @cached_property
    def _canonical(self) -> bytes:
        return canonical(self.document())

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that name the plan on the wire.

        Privacy
        -------
        They are in every message, so what they cover could distinguish devices that were given
        plans that differ. Plans that differ only in owner, dates or texts have one fingerprint.
        """
        return fingerprint_of(self.document())

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
        """Return the metric of that name; raises UnknownMetricError if there is none."""
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            if not isinstance(name, str):
                said = f"metric must be the name of one, a str; got {type_of(name)}"
                raise ValueTypeError(said) from None
            # Not the name that was given: an app may have put a value in its place.
            has = f"plan {self.plan!r} has no such metric; it has {', '.join(self._by_name)}"
            raise UnknownMetricError(has + did_you_mean(name, self._by_name)) from None

    @cached_property
    def measured(self) -> tuple[CompiledMetric, ...]:
        """The metrics whose values the device measures itself."""
        return tuple(metric for metric in self.metrics if metric.measure is not None)

    @cached_property
    def _fed(self) -> dict[str, dict[str, tuple[CompiledMetric, ...]]]:
        fed: dict[str, dict[str, tuple[CompiledMetric, ...]]] = {}
        for metric in self.measured:
            assert metric.measure is not None
            names = fed.setdefault(metric.measure.method, {})
            # Steps of a funnel are reached by the name of their metric.
            of = metric.measure.of or metric.name
            names[of] = (*names.get(of, ()), metric)
        return fed

    def fed(self, method: str, name: str) -> tuple[CompiledMetric, ...]:
        """Return the metrics that a method of the client feeds under a name.

        Raises UnknownMetricError if there are none.
        """
        named = self._fed.get(method, {})
        try:
            return named[name]
        except (KeyError, TypeError):
            if not isinstance(name, str):
                raise ValueTypeError(f"a name must be a str; got {type_of(name)}") from None
            plain = [each.name for each in self.metrics if not each.measure]
            takes = [*plain, *named] if method == "record" else list(named)
            near = did_you_mean(name, takes)
            if name in plain:
                near = f"; pass it to record({name!r}, value)"
            measure = self._by_name[name].measure if name in self._by_name else None
            if measure and measure.method:
                near = f"; {name} is fed by {measure.method}({measure.of or name!r})"
            raise UnknownMetricError(
                f"plan {self.plan!r} has nothing that {method}() takes by that name; it has "
                f"{', '.join(takes) or 'none'}{near}"
            ) from None

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """The public attributes: the segments, then the experiment's arm."""
        if not self.segments and self.experiment is None:
            return ()
        from sotto.plan.segments import attributes_of

        return attributes_of(self.segments, self.experiment)

    @cached_property
    def cells(self) -> int:
        """How many combinations of the attributes' values there are; 1 where there are none."""
        return prod(len(each.values) for each in self.attributes)

    @cached_property
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
        """Return the most budget periods of which a metric's window has a part."""
        if self.period % metric.window == 0:
            return 1
        return -(-metric.window // self.period) + (metric.window % self.period != 0)

    def most_reports(self, metric: CompiledMetric) -> int:
        """Return the most reports that a device can have in a metric's window."""
        periods, panel = self.periods_in(metric), metric.panel
        # In a panel's cycle a device has one turn; a window may have parts of several cycles.
        turns = min(periods, (periods - 2) // panel + 2) if periods > 1 else 1
        return metric.limit * turns

    def truncate(self, time: int) -> int:
        """Return ``time`` (ms) truncated, toward the past, to the plan's resolution."""
        return time - time % self.resolution

    def expired(self, time: int) -> bool:
        """Whether nothing may be recorded or newly released any more at ``time`` (ms)."""
        return time >= self.expires

    @property
    def last_day(self) -> str:
        """The last day on which anything is recorded, in UTC."""
        return day(self.expires - 1)

    def ending(self, time: int) -> str | None:
        """Return what to do about a plan that has ended at ``time`` (ms) or soon does, or None."""
        if time < self.expires - ENDS_SOON:
            return None
        ends = "ended" if self.expired(time) else "ends"
        return (
            f"plan {self.plan!r} version {self.version} {ends} on {self.last_day}: devices record "
            "nothing later; ship it with a later 'expires'"
        )


@frozen
class Plan:
    """A plan that can be honoured."""

    compiled: CompiledPlan
    #: Strings that the reports of each string metric that names a file of them are tested for. No
    #: part of the compiled plan: devices do not need them.
    candidates: Mapping[str, tuple[str, ...]]
    #: Reasons for the mechanism of each metric that left it open.
    chosen: Mapping[str, str]

    def compile(self) -> CompiledPlan:
        """Return the plan as devices and aggregators read it."""
        return self.compiled


def read_without_mechanisms(data: bytes, name: str = "the plan") -> CompiledPlan:
    """Return the plan that bytes describe; errors are as of :meth:`CompiledPlan.from_json`.

    Whether its mechanisms, ladders and ceilings can be honoured is for :func:`check` to say.
    """
    if not isinstance(data, bytes):
        raise PlanError(str(wrong_type(name, "the bytes of a compiled plan", data)))
    try:
        document = json.loads(data.decode("utf-8"))
        if "format" not in document:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise PlanError(
            f"{name} is not a compiled plan; run `sotto plan compile` and pass the .json file "
            "that it writes"
        ) from None
    plan = CompiledPlan.of_document(document)
    try:
        same = plan.to_json() == data
    except UnicodeEncodeError:
        # A half of a surrogate pair.
        same = False
    if not same:
        check(plan)
        raise PlanError(
            f"{name} is not in canonical form: compile the plan again, and do not edit or "
            "reformat what comes out"
        )
    return plan


def _segment(document: object) -> tuple[str, tuple[str, ...]]:
    name = Fields(document, "segments").take("name", str)
    return name, Fields(document, f"segment {name!r}").items("values", (str,)) or ()


#: Fields that the fingerprint covers: all that decide which bytes a device sends, and how they are
#: decoded and counted. ``docs/spec/formats.md`` says of each other field why it is left out.
_PLAN_WIRE = on_wire(CompiledPlan)
_METRIC_WIRE = on_wire(CompiledMetric, parameters="mechanism") | {"repeat"}


def fingerprint_of(document: Mapping[str, Any]) -> bytes:
    """Return the fingerprint that a compiled plan's document has, if it is one."""
    covered: dict[str, object] = {key: document[key] for key in document if key in _PLAN_WIRE}
    covered["metrics"] = [
        {key: value for key, value in metric.items() if key in _METRIC_WIRE}
        for metric in document["metrics"]
    ]
    return sha256(_FINGERPRINT + canonical(covered))


def canonical(document: Mapping[str, object]) -> bytes:
    """Return a JSON document as canonical bytes (``docs/spec/formats.md``)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def check(plan: CompiledPlan) -> None:
    """Raise PlanError, with a line for every problem, if a plan cannot be honoured."""
    # A client that records nothing checks nothing.
    from sotto.plan.checks import mechanism_problems, metric_problems

    problems = _plan_problems(plan)
    for metric in plan.metrics:
        problems += [
            f"metric {metric.name!r}{problem}"
            for problem in metric_problems(metric, plan.period, plan.resolution)
        ]
    # Mechanisms are built only from parameters that are sound, and summed only if all are.
    if not problems:
        for metric in plan.metrics:
            found = mechanism_problems(metric, plan.cells)
            problems += [f"metric {metric.name!r}{each}" for each in found]
    if not problems:
        problems = _ceiling_problems(plan) + _decision_problems(plan)
    if problems:
        raise PlanError("\n".join(problems))


def _plan_problems(plan: CompiledPlan) -> list[str]:
    from sotto.plan import checks
    from sotto.plan.durations import duration_text

    problems = []
    for what in ("collector", "plan"):
        if not checks.is_name(getattr(plan, what)):
            problems.append(f"{what} {getattr(plan, what)!r} must be a name: {checks.NAME_RULE}")
    if not (0 < len(plan.owner) <= 256 and checks.stays_in_line(plan.owner)):
        problems.append("owner must be whom to ask, on one line of at most 256 characters")
    if not 1 <= plan.version < 2**31:
        problems.append(f"version {plan.version} must be at least 1")
    if not 0 < plan.expires <= checks.MAX_TIME:
        problems.append("expires must lie between the years 1970 and 9999")
    shortest = {"resolution": checks.MIN_RESOLUTION, "period": checks.MIN_PERIOD}
    shortest |= {"grace": 0, "retention": 1}
    for what, low in shortest.items():
        duration = getattr(plan, what)
        if not low <= duration <= checks.MAX_DURATION:
            problems.append(
                f"{what} {duration_text(duration)} must be in [{duration_text(low)}, 36525d]"
            )
    if not problems and plan.period % plan.resolution:
        problems.append(
            f"period {duration_text(plan.period)} must be a multiple of the resolution, "
            f"{duration_text(plan.resolution)}"
        )
    for what, most in (("shards", 65536), ("minimum_reports", checks.MAX_MINIMUM_REPORTS)):
        if not 1 <= getattr(plan, what) <= most:
            problems.append(f"{what} {getattr(plan, what)} must be in [1, {most}]")
    if not 0 < plan.ceilings.period <= plan.ceilings.lifetime <= checks.MAX_CEILING:
        problems.append(
            f"ceilings: period {checks.amount(plan.ceilings.period)} must be above 0 and at most "
            f"lifetime {checks.amount(plan.ceilings.lifetime)}, itself at most "
            f"{checks.amount(checks.MAX_CEILING)}"
        )
    problems += checks.words_problems(description=plan.description, purpose=plan.purpose)
    problems += checks.group_problems(plan.groups, plan.metrics)
    if plan.attributes:
        from sotto.plan.segments import problems as segment_problems

        problems += segment_problems(plan.segments, plan.experiment)
    if plan.authentication not in ("none", "required"):
        problems.append(f"authentication {plan.authentication!r} must be none or required")
    if not 1 <= len(plan.metrics) <= 65535:
        problems.append("a plan has at least one metric and at most 65535")
    try:
        plan.to_json()
    except UnicodeEncodeError:
        problems.append("the plan has a character that UTF-8 cannot have")
    names = [metric.name for metric in plan.metrics]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"metric {name!r} is given twice")
    return problems + checks.source_problems(plan.metrics)


def _decision_problems(plan: CompiledPlan) -> list[str]:
    """Return what is wrong with the planned end of an experiment."""
    planned, where = plan.decision, "experiment: decision"
    if planned is None:
        return []
    from sotto.plan.durations import duration_text

    if plan.experiment is None:
        return [f"{where}: the plan has no experiment"]
    names = [each.name for each in plan.metrics]
    if planned.metric not in names:
        there = f"{', '.join(names)}{did_you_mean(planned.metric, names)}"
        return [f"{where}: there is no metric {planned.metric!r}; there are {there}"]
    metric, problems = plan.metric(planned.metric), []
    if why := metric.mechanism.why_not_compared:
        problems.append(
            f"{where}: arms are not compared by {metric.name!r} ({metric.mechanism.name}): {why}"
        )
    if not 0 <= planned.start < planned.end <= plan.expires:
        problems.append(f"{where}: start must be before end, and end not after expires")
    most = min((planned.end - planned.start) // metric.window, MAX_LOOKS)
    if not 1 <= planned.looks <= most:
        problems.append(
            f"{where}: looks {planned.looks} must be in [1, {most}]: each has a window of "
            f"{metric.name!r}, {duration_text(metric.window)}, and there are at most {MAX_LOOKS}"
        )
    return problems


def _ceiling_problems(plan: CompiledPlan) -> list[str]:
    from sotto.plan.checks import amount

    each = ", ".join(f"{metric.name} {amount(metric.cost)}" for metric in plan.metrics)
    problems = []
    if plan.cost > plan.ceilings.period:
        problems.append(
            f"ceilings: period {amount(plan.ceilings.period)} is less than the "
            f"{amount(plan.cost)} that the metrics can spend in a period ({each})"
        )
    once = plan.permanent + plan.recurring
    if plan.permanent and once > plan.ceilings.lifetime:
        permanent = ", ".join(
            f"{metric.name} {amount(metric.permanent)}"
            for metric in plan.metrics
            if metric.permanent
        )
        problems.append(
            f"ceilings: lifetime {amount(plan.ceilings.lifetime)} is less than the "
            f"{amount(once)} that the permanent responses ({permanent}) and one period cost"
        )
    return problems
