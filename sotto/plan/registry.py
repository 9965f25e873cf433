"""The plans that an aggregator reads reports of: all of one collector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sotto.errors import PlanError
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.wire.signatures import require_signatures


def names_of(plans: Iterable[CompiledPlan]) -> dict[str, str]:
    """Return what people call plans, by fingerprint in hexadecimal."""
    return {plan.fingerprint_hex: f"{plan.plan} version {plan.version}" for plan in plans}


def check_unchanged(known: Mapping[str, str], plans: Iterable[CompiledPlan]) -> None:
    """Raise PlanError if another fingerprint has the name and version of a plan.

    ``known`` are all plans of their collector that have been seen, as :func:`names_of` returns
    them. The error says which plan, both fingerprints, and what to do.
    """
    seen = {name: fingerprint for fingerprint, name in known.items()}
    for fingerprint, name in names_of(plans).items():
        if seen.get(name, fingerprint) != fingerprint:
            raise PlanError(
                f"plan {name} has two fingerprints: {seen[name]} is known already, and "
                f"{fingerprint} is given now. The text has changed, or this release chooses "
                "another mechanism where the text names none. A version has one fingerprint: give "
                "the .json of the plan that is known, or nothing where a state directory keeps it, "
                "and the other plan under a new version"
            )


def by_fingerprint(plans: Iterable[CompiledPlan]) -> dict[bytes, CompiledPlan]:
    """Return plans by fingerprint; one given twice counts once.

    Raises PlanError if two documents of one fingerprint differ. Neither may win silently: one of
    them may withhold less, or keep what is rejected for longer.
    """
    found: dict[bytes, CompiledPlan] = {}
    for plan in plans:
        known = found.setdefault(plan.fingerprint, plan)
        if known.digest != plan.digest:
            one, other = (json.loads(each.to_json()) for each in (known, plan))
            keys = sorted(one.keys() | other.keys())
            differing = [key for key in keys if one.get(key) != other.get(key)]
            raise PlanError(
                f"plan {plan.plan} version {plan.version} is given twice, in documents that differ "
                f"in {', '.join(differing)}: give one of them"
            )
    return found


class RegisteredMetric(NamedTuple):
    """A metric of one plan, under the id that it has within one registry."""

    #: Its index in :attr:`Registry.metrics`.
    id: int
    #: The plan's.
    fingerprint: bytes
    plan: CompiledPlan
    metric: CompiledMetric


class Registry:
    """All plans and versions of one collector, which share one ledger a device.

    The order of the plans gives the metrics' ids; a document given twice counts once.

    Raises
    ------
    PlanError
        No plan, the plans differ in collector, period, resolution or shards, two with one name
        and version have different fingerprints, or two documents with one fingerprint differ.
    """

    def __init__(self, plans: Sequence[CompiledPlan]) -> None:
        self.by_fingerprint = by_fingerprint(plans)
        self.plans = tuple(self.by_fingerprint.values())
        if not self.plans:
            raise PlanError("a registry needs at least one plan")
        first = self.plans[0]
        for plan in self.plans[1:]:
            for what in ("collector", "period", "resolution", "shards"):
                if getattr(plan, what) != getattr(first, what):
                    raise PlanError(
                        f"plan {plan.plan!r} version {plan.version}: {what} "
                        f"{getattr(plan, what)!r} must be {getattr(first, what)!r} "
                        f"as in plan {first.plan!r} version {first.version}"
                    )
        known: dict[str, str] = {}
        for plan in self.plans:
            check_unchanged(known, [plan])
            known |= names_of([plan])
        self.collector, self.shards = first.collector, first.shards
        #: In milliseconds, as in all plans.
        self.period, self.resolution = first.period, first.resolution
        #: Micro-epsilon that a pseudonym may spend in a period: the highest of the plans' ceilings,
        #: since a device that recorded under an older plan keeps to that plan's.
        self.budget = max(plan.ceilings.period for plan in self.plans)
        #: Milliseconds after which no report of an event is accepted any more, of any metric.
        self.horizon = max(plan.horizon for plan in self.plans)
        #: Whether any of the plans has signed messages.
        self.signed = any(plan.signed for plan in self.plans)
        pairs = [(plan, metric) for plan in self.plans for metric in plan.metrics]
        if len(pairs) > 0xFFFF:
            raise PlanError(f"{len(pairs)} metrics in one registry; at most 65535 are allowed")
        self.metrics = tuple(
            RegisteredMetric(number, plan.fingerprint, plan, metric)
            for number, (plan, metric) in enumerate(pairs)
        )
        # Cells of other attributes mean something else.
        alike: dict[tuple[object, ...], list[RegisteredMetric]] = {}
        for each in sorted(self.metrics, key=lambda each: each.plan.version):
            name = (each.plan.plan, each.plan.segments, each.plan.experiment, each.metric.counted)
            alike.setdefault(name, []).append(each)
        #: By fingerprint and index of a metric: that metric in all versions of the plan that have
        #: it unchanged, the lowest version first. One estimate is made across them.
        self.same = {
            (each.fingerprint, each.metric.index): versions
            for versions in alike.values()
            for each in versions
        }

    def minimum_reports(self, fingerprint: bytes, metric: int) -> int:
        """Return below how many reports nothing is estimated of a metric, whatever the version."""
        return max(each.plan.minimum_reports for each in self.same[fingerprint, metric])

    def complete_at(self, fingerprint: bytes, metric: int, start: int) -> int:
        """Return the append time, ms, when a metric's window is complete that begins at ``start``.

        All levels of its events are then due, in every version of the plan that has the metric, and
        the grace for those that are late is over.
        """
        versions = self.same[fingerprint, metric]
        of_metric, grace = versions[0].metric, max(each.plan.grace for each in versions)
        last = of_metric.delays[-1] if of_metric.delays else 0
        return start + of_metric.window + last + self.resolution + grace

    @property
    def unsigned(self) -> tuple[str, ...]:
        """The names of the plans without signatures, where others have them; mostly none."""
        bare = [plan for plan in self.plans if self.signed and not plan.signed]
        return tuple(names_of(bare).values())

    def require_signatures(self) -> None:
        """Raise ModuleNotFoundError if there are signatures, and their extra is not installed."""
        if self.signed:
            require_signatures()

    def period_of(self, time: int) -> int:
        """Return the number of the budget period that contains ``time`` (ms)."""
        return time // self.period
