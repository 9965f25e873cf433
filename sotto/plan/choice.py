"""The mechanism of a metric: the best certified one where the plan names none, all parameters set.

Parameters that need not be written follow from the metric and its ladder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.registry import build, mechanism_class, mechanisms_for, supports_constant
from sotto.errors import PlanError
from sotto.plan.metric import Parameter

#: Parameters that the metric itself gives, where a mechanism has them.
_TOLD = frozenset({"domain_size", "missing", "clip", "dimensions"})


class Asked(NamedTuple):
    """Known facts about the mechanism that a metric needs."""

    #: The metric's type.
    kind: str
    #: The mechanism's parameters that the metric itself gives.
    given: Mapping[str, Parameter]
    #: Nominal micro-epsilon, weakest first.
    ladder: tuple[int, ...]
    #: The metric's name.
    metric: str
    #: Whether the last level is a response that stays on the device.
    constant: bool = False
    #: How long a count vector may be, for all that are open at a time to fit.
    counts: int | None = None
    #: Whether a number's quantiles are wanted, with intervals.
    quantiles: bool = False
    #: Whether the device measures the value itself.
    measured: bool = False

    @property
    def level(self) -> int:
        """The last level that is sent."""
        return len(self.ladder) - 1 - self.constant

    @property
    def epsilon(self) -> float:
        """Nominal epsilon of that level, 0 if there is none."""
        return self.ladder[self.level] / MICRO if self.level >= 0 else 0.0

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        value = self.given[name]
        assert isinstance(value, int)
        return value


def spec_of(
    name: str, asked: Asked, written: Mapping[str, Parameter] | None = None
) -> dict[str, Parameter]:
    """Return a mechanism of the registry with all its parameters.

    A parameter ``written`` in the plan that is none of the mechanism's stays, so that it is
    refused.

    >>> asked = Asked("category", {"domain_size": 5, "missing": False}, (1_000_000,), "colour")
    >>> spec_of("grr", asked)
    {'name': 'grr', 'domain_size': 5}
    """
    kind = mechanism_class(name)
    fields = kind.parameters()
    known = {key: value for key, value in asked.given.items() if key in fields or key not in _TOLD}
    known |= written or {}
    left = set(fields) - set(known)
    if left:
        # Defaults follow from the metric, not from what is written, which is not checked yet.
        micro = asked.ladder[asked.level] if asked.level >= 0 else 0
        last = asked.ladder[-1] if asked.ladder else 0
        made = kind.defaults(micro, {**asked.given, "last": last})
        known |= {key: value for key, value in made.items() if key in left}
    return {"name": name, **known}


#: Up to here a number is hidden by a random threshold, which shows the whole distribution. Its
#: worst-case variance is less than the published Hybrid Mechanism's up to epsilon 1.901; that of
#: the one on a grid is less from 1.63 on, by 2.5 % in error at 1.9.
THRESHOLD_LIMIT = 1.9
#: From here on the coordinates of a vector vary less if they are hidden on a grid.
GRID_VECTOR = 2.0
#: Variances that differ by no more than this part (2.5 % in the error) are as good as the same.
_SAME = 0.05


class Choice(NamedTuple):
    """A mechanism's name and parameters, and why it was chosen."""

    spec: dict[str, Parameter]
    why: str


def choose(asked: Asked) -> Choice:
    """Choose a mechanism for a metric.

    >>> choose(Asked("boolean", {"domain_size": 2}, (1_000_000,), "late")).spec
    {'name': 'grr', 'domain_size': 2}
    """
    if asked.kind == "number":
        return choose_number(asked)
    if asked.kind == "vector":
        return choose_vector(asked)
    if asked.kind in ("category", "boolean"):
        try:
            return choose_category(asked)
        except PlanError:
            # The checks will say which level or size is wrong, as if grr had been asked for.
            return Choice(spec_of("grr", asked), "")
    name, why = _MEASURED if asked.measured else _ONLY[asked.kind]
    spec = spec_of(name, asked)
    if spec.get("subset_size") == 1:
        why = "with one candidate favoured it is grr: at this epsilon more are no nearer"
    return Choice(spec, why)


#: The mechanism of an ordinal metric that the device measures.
_MEASURED = ("grr", "shares without bias, which funnels and retention need")

#: The mechanisms of types that have a best one whatever the ladder.
_ONLY = {
    "string": ("rappor", "the mechanism for strings that are not known in advance"),
    "ordinal": (
        "brr",
        "reports are near the true value, which grr's are not; grr shows how often each value "
        "occurs",
    ),
    "top_item": (
        "top_response",
        "estimates without bias of what share of devices an item is the most frequent; what "
        "permute_and_flip shows is biased",
    ),
    "survey": ("warner", "of the survey designs the one with the least variance at any epsilon"),
}


def choose_category(asked: Asked) -> Choice:
    """Choose the mechanism with the least noise in the shares of categories.

    The variance at the last level that is sent counts, summed over symbols
    (:meth:`mechanisms.noise.Noise.total`), from the realised probabilities. The one with the
    smallest payload is taken of those within 5 % of the least, then the one that varies least, then
    the first in :data:`mechanisms.registry.REGISTRY`: 2.5 % of an error are not noticed, and a
    report of 1,000 categories is of 1 byte or of 125. A mechanism with more counts than fit is left
    out. Raises PlanError if none can honour the ladder.

    Examples
    --------
    >>> ladder = (500_000, 2_000_000)
    >>> choose_category(Asked("category", {"domain_size": 5}, ladder, "carrier")).spec["name"]
    'grr'
    >>> choose_category(Asked("category", {"domain_size": 200}, ladder, "airport")).spec["name"]
    'local_hashing'
    """
    found: list[tuple[float, Mechanism]] = []
    problems = []
    for name in mechanisms_for(asked.kind):
        if asked.constant and not supports_constant({"name": name}):
            continue
        try:
            mechanism = build(spec_of(name, asked), asked.ladder, asked.metric)
        except ParameterError as error:
            problems.append(str(error))
            continue
        noise = mechanism.noise(asked.level)
        fits = asked.counts is None or mechanism.count_length <= asked.counts
        if noise is not None and fits:
            found.append((noise.total(asked.number("domain_size")), mechanism))
    if not found:
        raise PlanError("; ".join(dict.fromkeys(problems)))
    least = min(value for value, _ in found)
    alike = [item for item in found if item[0] <= least * (1 + _SAME)]
    # Equal variances differ in their last digits.
    value, best = min(alike, key=lambda item: (item[1].payload_width, float(f"{item[0]:.9g}")))
    found.sort(key=itemgetter(0))
    each = ", ".join(f"{made.name} {value:.4g}" for value, made in found)
    what = "least variance at the last level"
    if value > least * (1 + 1e-9):
        what = (
            f"smallest payload of those whose variance at the last level is within "
            f"{100 * _SAME:.0f} % of the least"
        )
    return Choice(spec_of(best.name, asked), f"{what} (n times the sum over symbols: {each})")


def choose_number(asked: Asked) -> Choice:
    """Choose the mechanism for a number: its mean, and its distribution while that costs little.

    >>> def name(*ladder, constant=False):
    ...     asked = Asked("number", {"missing": False}, ladder, "delay", constant)
    ...     return choose_number(asked).spec["name"]
    >>> name(500_000, 1_900_000), name(500_000, 2_000_000), name(500_000, 1_000_000, constant=True)
    ('threshold', 'hybrid', 'hybrid')
    >>> asked = Asked("number", {"missing": False}, (2_000_000,), "delay", quantiles=True)
    >>> choose_number(asked).spec["name"]
    'threshold'
    """
    if asked.constant:
        return Choice(
            spec_of("hybrid", asked),
            "least worst-case variance of the mean without a public coin, which a constant metric "
            "cannot have",
        )
    threshold, hybrid = spec_of("threshold", asked), spec_of("hybrid", asked)
    if asked.quantiles:
        compared = _compared(threshold, hybrid, asked)
        return Choice(threshold, "quantiles with intervals, which the plan asks for" + compared)
    if asked.epsilon <= THRESHOLD_LIMIT:
        return Choice(
            threshold,
            "the whole distribution besides the mean, up to epsilon 1.9"
            + _compared(threshold, hybrid, asked),
        )
    return Choice(
        hybrid,
        "the mean above epsilon 1.9"
        + _compared(hybrid, threshold, asked)
        + ", which also shows the distribution",
    )


def _compared(chosen: Mapping[str, Parameter], other: Mapping[str, Parameter], asked: Asked) -> str:
    """Compare the predicted errors of two mechanisms for a number at the last level sent."""
    try:
        made: list[Any] = [build(spec, asked.ladder, asked.metric) for spec in (chosen, other)]
        variances = [each.worst_variance(asked.level) for each in made]
    except ParameterError:
        # The checks say what is wrong with the ladder.
        return ""
    part = 100 * (math.sqrt(variances[0] / variances[1]) - 1)
    return f"; worst-case error of the mean of many reports {part:+.1f} % beside {other['name']}"


def choose_vector(asked: Asked) -> Choice:
    """Choose how many coordinates of a vector a report is about, and by what each is hidden.

    >>> choose_vector(Asked("vector", {"dimensions": 16}, (500_000, 1_000_000), "v")).spec
    {'name': 'sampled_vector', 'dimensions': 16, 'sampled': 1, 'bits': 0}
    >>> choose_vector(Asked("vector", {"dimensions": 16}, (1_000_000, 8_000_000), "v")).spec["name"]
    'sampled_hybrid'
    """
    grid = asked.epsilon >= GRID_VECTOR and not asked.quantiles
    spec = spec_of("sampled_hybrid" if grid else "sampled_vector", asked)
    what = "on a grid" if grid else "by a random threshold"
    return Choice(
        spec,
        "least variance of the means, of uniform numbers, at the last level with "
        f"{spec['sampled']} of {spec['dimensions']} coordinates a report, each {what}",
    )
