"""How much a plan can take of a person over time, for how long the lifetime lasts, what is much.

All amounts are certified ones. With ``panel: 1/N`` a device answers in one budget period of each N
(its *turns*), so that a year takes 1/N as much of the lifetime's ceiling.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from mechanisms.base import NO_ID
from mechanisms.channel import use_channel
from mechanisms.exact import MICRO
from mechanisms.randomness import NO_SOURCE
from sotto.errors import ParameterError
from sotto.plan.checks import MAX_PANEL, amount
from sotto.plan.durations import duration_text

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

DAY = 86_400_000
#: A year of 365.25 days.
YEAR = 31_557_600_000
#: Years that a plan should last for.
YEARS = 10


@dataclass(frozen=True)
class Levels:
    """From where on a plan is warned of; each is above 0."""

    #: Epsilon that one value may cost, and a period for each of its days.
    value: float = 4.0
    day: float = 8.0
    #: Years that the lifetime's ceiling should last for at least.
    years: float = 2.0

    def __post_init__(self) -> None:
        for name in ("value", "day", "years"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ParameterError(f"--warn-{name} must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True)
class Lifetime:
    """For how long a device answers until its lifetime's ceiling is reached."""

    #: Milliseconds.
    period: int
    #: Micro-epsilon that periods may take: the lifetime's ceiling less permanent responses.
    ceiling: int
    #: Each N, ascending, with what a turn costs, in micro-epsilon. Constant metrics take nothing.
    costs: tuple[tuple[int, int], ...]

    @property
    def rate(self) -> Fraction:
        """Micro-epsilon that a period takes, averaged over a device's turns."""
        return sum((Fraction(cost, panel) for panel, cost in self.costs), Fraction())

    @property
    def yearly(self) -> float:
        """Micro-epsilon that a year takes."""
        return float(self.rate * Fraction(YEAR, self.period))

    @property
    def panel(self) -> int | None:
        """The N that all metrics have; None if they differ, or none takes anything."""
        return self.costs[0][0] if len(self.costs) == 1 else None

    @property
    def turns(self) -> int | None:
        """How often a device can answer in full, where all metrics have their turns together."""
        return self.ceiling // self.costs[0][1] if len(self.costs) == 1 else None

    @property
    def periods(self) -> int | None:
        """After how many budget periods the ceiling is reached; None for never."""
        if not self.costs:
            return None
        if self.panel is not None and self.turns is not None:
            return self.turns * self.panel
        return int(self.ceiling / self.rate)

    @property
    def years(self) -> float:
        """The same in years; infinite for never."""
        return float("inf") if self.periods is None else self.periods * self.period / YEAR


def lifetime_of(plan: CompiledPlan, panel: int | None = None) -> Lifetime:
    """Return for how long a lifetime lasts, or would with another panel for all metrics."""
    costs: Counter[int] = Counter()
    for metric in plan.metrics:
        if not metric.permanent:
            costs[metric.panel if panel is None else panel] += metric.cost
    ceiling = plan.ceilings.lifetime - plan.permanent
    return Lifetime(plan.period, ceiling, tuple(sorted(costs.items())))


def theft(metric: CompiledMetric) -> int:
    """Return the micro-epsilon of one look at a device's file and of all reports of the period.

    The metric is a measure ``used``. The exact worst case over all histories of uses, from the
    realised probabilities, rounded up.
    """
    mechanism = metric.mechanism
    symbols = [metric.encode(used) for used in (False, True)]
    inputs = [mechanism.encode(symbol, NO_ID, NO_ID, NO_SOURCE) for symbol in symbols]
    return use_channel(mechanism.chain, inputs).certified


def value_cost(metric: CompiledMetric) -> int:
    """Return what a single value can cost in all, in micro-epsilon."""
    return max(metric.cost // metric.limit, metric.permanent)


def daily(plan: CompiledPlan) -> float:
    """Return what a full period costs for each of its days, in micro-epsilon.

    Panels do not lower it: in its turn a device answers as often as without them. No ceiling
    does: a plan whose metrics can spend more in a period than that is refused.
    """
    return plan.cost * DAY / plan.period


def needed_panel(plan: CompiledPlan, years: float) -> int | None:
    """Return the least N with which the lifetime lasts so long; None if none does."""
    if lifetime_of(plan, MAX_PANEL).years < years:
        return None
    # The more panels, the longer it lasts.
    panels = range(1, MAX_PANEL)
    return 1 + bisect_left(panels, years, key=lambda panel: lifetime_of(plan, panel).years)


def in_words(plan: CompiledPlan) -> list[str]:
    """Return in lines for how long the lifetime lasts, with the plan's panels and without."""
    lasts = lifetime_of(plan)
    if lasts.periods is None:
        return []
    spends = (
        f"spends {figure(lasts.yearly / MICRO)} of its lifetime of "
        f"{figure(plan.ceilings.lifetime / MICRO)} a year: it lasts {figure(lasts.years)} years"
    )
    if lasts.panel is None:
        return [f"with the panels {_panels(plan)} a device {spends}", _without(plan)]
    turns = YEAR / plan.period / lasts.panel
    answers = f"{turns:.0f}" if turns >= 10 else f"{turns:.2g}"
    length = duration_text(plan.period)
    if lasts.panel > 1:
        line = f"with panel 1/{lasts.panel} a device answers in {answers} periods of {length} a "
        return [f"{line}year and {spends}", _without(plan)]
    lines = [f"a device answers in every period of {length}, {answers} a year, and {spends}"]
    panel = needed_panel(plan, YEARS)
    if panel is not None and panel > 1:
        better = figure(lifetime_of(plan, panel).years)
        lines.append(f"with panel: 1/{panel} it would last {better} years")
    return lines


def _without(plan: CompiledPlan) -> str:
    return f"without panels it would last {figure(lifetime_of(plan, 1).years)} years"


def _panels(plan: CompiledPlan) -> str:
    named: dict[int, list[str]] = {}
    for metric in plan.metrics:
        if not metric.permanent:
            named.setdefault(metric.panel, []).append(metric.name)
    return ", ".join(f"1/{n} ({', '.join(named[n])})" for n in sorted(named))


def figure(number: float) -> str:
    """Return three significant digits, never with an exponent.

    >>> figure(312.9), figure(24.07), figure(12.46), figure(0.958), figure(12345)
    ('313', '24.1', '12.5', '0.958', '12345')
    """
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def warnings(plan: CompiledPlan, levels: Levels, now: int) -> list[str]:
    """Return what a plan asks for that is much, a line each, of a device that begins at ``now``."""
    found = [*_of_values(plan.metrics, levels)]
    if daily(plan) > levels.day * MICRO:
        found.append(
            f"a period ({duration_text(plan.period)}) can cost {amount(plan.cost)}, which is "
            f"{figure(daily(plan) / MICRO)} a day, above {levels.day:g}"
        )
    lasts = lifetime_of(plan)
    if lasts.periods is None:
        return found
    too_short = lasts.years < levels.years
    if too_short or now + lasts.periods * plan.period < plan.expires:
        than = f"less than {levels.years:g}" if too_short else "and ends before the plan expires"
        panel = needed_panel(plan, max(YEARS, (plan.expires - now) / YEAR))
        remedy = "raise it" if panel is None else f"panel: 1/{panel} makes it last"
        found.append(
            f"the lifetime's ceiling of {amount(plan.ceilings.lifetime)} lasts "
            f"{figure(lasts.years)} years, {than}; a device is silent from then on ({remedy})"
        )
    return found


def _of_values(metrics: Iterable[CompiledMetric], levels: Levels) -> list[str]:
    return [
        f"metric {metric.name!r}: a value can cost {amount(value_cost(metric))}, above "
        f"{levels.value:g}"
        for metric in metrics
        if value_cost(metric) > levels.value * MICRO
    ]
