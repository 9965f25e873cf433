"""The subject of a question: a metric of a plan, or a type of value and a ladder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from mechanisms.planner.precision import conversion, ordinal_mean, precision, retention
from mechanisms.planner.targets import Assumed, Precision
from mechanisms.registry import build, mechanisms_for
from sotto.design.small_groups import published_from
from sotto.errors import ParameterError, did_you_mean
from sotto.plan.choice import Asked, choose, spec_of
from sotto.plan.compiled import MINIMUM_REPORTS
from sotto.plan.metric import TYPES, Parameter

if TYPE_CHECKING:
    from mechanisms.base import Mechanism
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: Parameters that are best at one epsilon.
_TUNED = frozenset({"buckets", "subset_size", "blocks", "sampled", "cards"})
#: Parameters that a question must have by type, and defaults of others.
_NEEDED = {"domain_size": ("category", "ordinal", "top_item"), "dimensions": ("vector",)}
_DEFAULTS: Mapping[str, Mapping[str, Parameter]] = {
    "boolean": {"domain_size": 2},
    "survey": {"domain_size": 2},
    "top_item": {"clip": 20},
    "string": {"bits": 128, "hashes": 2, "cohorts": 16},
}
#: The share of new devices, or of those who reach a step, if it is not given.
_PART = 0.1


@dataclass(frozen=True)
class Question:
    """A metric, in a plan or not, of which something is asked."""

    name: str
    #: A type of :data:`sotto.plan.metric.TYPES`.
    kind: str
    #: The mechanism and its parameters.
    spec: Mapping[str, Parameter]
    #: Nominal micro-epsilon, weakest first, a permanent response included.
    ladder: tuple[int, ...]
    assumed: Assumed = field(default_factory=Assumed)
    #: Length of the range and its unit; 1 and "" of a share.
    scale: float = 1.0
    unit: str = ""
    #: Milliseconds after which each level is sent; empty outside a plan.
    after: tuple[int, ...] = ()
    #: Whether the last level is a permanent response, which is never sent.
    constant: bool = False
    #: Reports that a user has in a window, on average.
    per_user: float = 1.0
    #: A user answers in one of so many budget periods.
    panel: int = 1
    #: Budget periods in a window.
    periods: float = 1.0
    #: The beginning of the range; 0 for a share.
    low: float = 0.0
    #: Reports that a user can have in a window.
    most_reports: int = 1
    #: The plan's, by which estimates are withheld.
    minimum_reports: int = MINIMUM_REPORTS
    #: ``age`` or ``furthest`` if a ratio is asked, a retention or a conversion; its share is known.
    ratio: str | None = None
    #: Whether shares of ordered values are asked for, not their mean.
    shares: bool = False

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism with its whole ladder."""
        return build(self.spec, self.ladder, self.name)

    @property
    def sent(self) -> int:
        """The number of levels that leave the device."""
        return len(self.after) or len(self.ladder) - self.constant

    @property
    def published_from(self) -> int:
        """Reports of a level from which on it is published, in 95 % of windows."""
        return published_from(self.mechanism.groups, self.minimum_reports)

    def precision(self, level: int) -> Precision:
        """Return how precise the main estimate will be at a level."""
        return self.precision_of(self.mechanism, level)

    def precision_of(self, mechanism: Mechanism, level: int) -> Precision:
        """Return the same of another mechanism for the question."""
        share = self.assumed.share or 1.0
        if self.ratio == "age":
            return retention(mechanism, level, share, panel=self.panel)
        if self.ratio is not None:
            return conversion(mechanism, level, share)
        make = ordinal_mean if self.kind == "ordinal" and not self.shares else precision
        return make(mechanism, level, self.assumed, scale=self.scale)

    def alone(self, micro: int) -> Mechanism:
        """Return the mechanism of a single report, its parameters as they are best at its epsilon.

        A ladder has those that are best at its last level at all of them.
        """
        given = {key: value for key, value in self.spec.items() if key not in _TUNED}
        name = str(given.pop("name"))
        asked = Asked(self.kind, {"missing": False, **given}, (micro,), self.name)
        return build(spec_of(name, asked), (micro,), self.name)

    def in_panel(self, panel: int) -> Question:
        """Return the question of users who answer in one of so many periods."""
        per_user = self.per_user * self.panel / panel
        if self.constant:
            per_user = min(1.0, self.periods / panel)
        return replace(self, panel=panel, per_user=per_user)

    def reports(self, users: int) -> int:
        """Return how many reports so many users have in a window."""
        return max(int(users * self.per_user), 1)

    def users(self, reports: int) -> int:
        """Return how many users have so many reports in a window."""
        return ceil(reports / self.per_user)


def question_of(
    kind: str,
    ladder: Sequence[int],
    given: Mapping[str, Parameter],
    *,
    mechanism: str | None = None,
    assumed: Assumed | None = None,
    scale: float = 1.0,
    low: float = 0.0,
) -> Question:
    """Return the question of a metric that is in no plan.

    The arguments are what the metric says: ``domain_size``, ``dimensions``, ``bits`` and so on; a
    mechanism that is not named is the chooser's. Raises ParameterError if there is no such type or
    mechanism, or they cannot honour the ladder.

    Examples
    --------
    >>> question_of("number", [1_000_000], {}).spec["name"]
    'threshold'
    """
    if kind not in TYPES:
        near = did_you_mean(kind, TYPES)
        raise ParameterError(f"type must be one of {', '.join(TYPES)}, not {kind!r}{near}")
    known: dict[str, Parameter] = {"missing": False, **_DEFAULTS.get(kind, {}), **given}
    for parameter, kinds in _NEEDED.items():
        if kind in kinds and parameter not in known:
            raise ParameterError(f"type {kind} needs {parameter.replace('_size', '')}")
    asked = Asked(kind, known, tuple(ladder), "question")
    if mechanism is None:
        spec = choose(asked).spec
    elif mechanism in mechanisms_for(kind):
        spec = spec_of(mechanism, asked)
    else:
        raise ParameterError(
            f"a {kind} can have the mechanism {', '.join(mechanisms_for(kind))}, not {mechanism!r}"
        )
    assumed = assumed or Assumed()
    found = Question(kind, kind, spec, tuple(ladder), assumed, scale, low=low)
    _ = found.mechanism
    return found


def question_of_metric(
    plan: CompiledPlan, metric: CompiledMetric, assumed: Assumed | None = None
) -> Question:
    """Return the question of a metric of a plan.

    A user has as many reports in a window as it has budget periods that are its turn, times the
    values of each; of a constant metric one, since those of other periods repeat the same
    permanent response.
    """
    low, scale, unit = 0.0, 1.0, ""
    assumed, ratio = assumed or Assumed(), metric.measure and metric.measure.kind
    if ratio not in ("age", "furthest"):
        ratio = None
    else:
        # Everybody has reached the step before the only one.
        single = ratio == "furthest" and len(metric.labels) == 2
        assumed = replace(assumed, share=1.0 if single else assumed.share or _PART)
    # A mean of bins is a rank; other mechanisms have no unbiased shares of them.
    shares = bool(metric.edges and metric.measure and not ratio) and metric.spec["name"] == "grr"
    if metric.range is not None:
        low, high = metric.range
        scale, unit = high - low, metric.unit or ""
    elif metric.type == "ordinal" and not ratio and not shares:
        scale, unit = float(len(metric.labels) - metric.missing - 1), "rank"
    constant, periods = metric.kind == "constant", metric.window / plan.period
    asked = Question(
        metric.name,
        metric.type,
        metric.spec,
        tuple(level.epsilon for level in metric.ladder),
        assumed,
        scale,
        unit,
        metric.delays,
        constant,
        1.0 if constant else metric.limit * periods,
        periods=periods,
        low=low,
        most_reports=plan.most_reports(metric),
        minimum_reports=plan.minimum_reports,
        ratio=ratio,
        shares=shares,
    )
    return asked.in_panel(metric.panel) if metric.panel > 1 else asked
