"""What a plan must satisfy to load: nothing is agreed that cannot be honoured.

Every problem names the metric and the rung, the value found and what is allowed. The standard
library alone is needed, so a device refuses the same plans as the compiler.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from sotto.errors import ParameterError, PlanError
from sotto.plan.durations import duration_text
from sotto.plan.typechecks import type_problems
from sotto.plan.types import MECHANISMS

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}")
MAX_RUNGS = 8
#: A century: no duration is longer, so that sums of times stay far within 64 bits.
MAX_DURATION = 36_525 * 86_400_000
#: The year 9999.
MAX_TIME = 253_402_300_800_000
MAX_LIMIT = 1_000_000
#: Into how many panels devices are divided at most.
MAX_PANEL = 1000
#: A time rounded to less is as good as exact, and every period has states of its own.
MIN_RESOLUTION = 1000
MIN_PERIOD = 60_000
#: Cells of a count vector, of which aggregators keep one a window and level.
MAX_COUNTS = 1 << 24
#: Cells of all count vectors of a metric that are open at a time: 512 MiB.
MAX_OPEN_COUNTS = 1 << 26
#: Of how many reports a plan may ask that an estimate is.
MAX_MINIMUM_REPORTS = 10**9
#: Epsilon a million, in micro-epsilon: no ceiling is higher.
MAX_CEILING = 10**12


def amount(micro: int) -> str:
    """Return micro-epsilon as people write epsilon.

    >>> amount(500_000), amount(1_000_000)
    ('0.5', '1.0')
    """
    return str(micro / 1_000_000)


def check(plan: CompiledPlan) -> None:
    """Refuse a plan that cannot be honoured.

    Raises
    ------
    PlanError
        With a line for every problem found.
    """
    problems = _plan_problems(plan)
    for metric in plan.metrics:
        problems += [
            f"metric {metric.name!r}{problem}" for problem in _metric_problems(plan, metric)
        ]
    # Mechanisms are built only from parameters that are sound, and summed only if all are.
    if not problems:
        for metric in plan.metrics:
            problems += [f"metric {metric.name!r}{each}" for each in _mechanism_problems(metric)]
    if not problems:
        problems = _ceiling_problems(plan)
    if problems:
        raise PlanError("\n".join(problems))


def _plan_problems(plan: CompiledPlan) -> list[str]:
    problems = []
    for what in ("collector", "plan"):
        if not NAME.fullmatch(getattr(plan, what)):
            problems.append(f"{what} {getattr(plan, what)!r} must be a name: {_NAME_RULE}")
    if not 0 < len(plan.owner) <= 256:
        problems.append("owner must say whom to ask, in at most 256 characters")
    if not 1 <= plan.version < 2**31:
        problems.append(f"version {plan.version} must be at least 1")
    if not 0 < plan.expires <= MAX_TIME:
        problems.append("expires must lie between the years 1970 and 9999")
    shortest = {"resolution": MIN_RESOLUTION, "period": MIN_PERIOD, "grace": 0, "retention": 1}
    for what, low in shortest.items():
        duration = getattr(plan, what)
        if not low <= duration <= MAX_DURATION:
            problems.append(
                f"{what} {duration_text(duration)} must be in [{duration_text(low)}, 36525d]"
            )
    if not problems and plan.period % plan.resolution:
        problems.append(
            f"period {duration_text(plan.period)} must be a multiple of the resolution, "
            f"{duration_text(plan.resolution)}"
        )
    if not 1 <= plan.shards <= 65536:
        problems.append(f"shards {plan.shards} must be in [1, 65536]")
    if not 1 <= plan.minimum_reports <= MAX_MINIMUM_REPORTS:
        problems.append(
            f"minimum_reports {plan.minimum_reports} must be in [1, {MAX_MINIMUM_REPORTS}]"
        )
    if not 0 < plan.ceilings.period <= plan.ceilings.lifetime <= MAX_CEILING:
        problems.append(
            f"ceilings: period {amount(plan.ceilings.period)} must be above 0 and at most "
            f"lifetime {amount(plan.ceilings.lifetime)}, itself at most {amount(MAX_CEILING)}"
        )
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
        problems.append(f"metric {name!r} is there twice")
    return problems


_NAME_RULE = "letters, digits, '_', '.' and '-', at most 128, a letter or digit first"


def _metric_problems(plan: CompiledPlan, metric: CompiledMetric) -> list[str]:
    problems = []
    if not NAME.fullmatch(metric.name):
        problems.append(f": its name must consist of {_NAME_RULE}")
    if metric.type not in MECHANISMS:
        return [*problems, f": type {metric.type!r} must be one of {', '.join(MECHANISMS)}"]
    if not 0 < metric.window <= MAX_DURATION or metric.window % max(plan.resolution, 1):
        problems.append(
            f": window {duration_text(metric.window)} must be a multiple of the resolution, "
            f"{duration_text(plan.resolution)}, and at most 36525d"
        )
    if not 1 <= metric.limit <= MAX_LIMIT:
        problems.append(f": repeat: limit {metric.limit} must be in [1, {MAX_LIMIT}]")
    if not 1 <= metric.panel <= MAX_PANEL:
        problems.append(f": panel 1/{metric.panel} must be 1/N with N in [1, {MAX_PANEL}]")
    problems += _repeat_problems(metric)
    problems += _ladder_problems(plan, metric)
    return problems + type_problems(metric)


def _repeat_problems(metric: CompiledMetric) -> list[str]:
    kinds = ("first", "reservoir", "every", "constant")
    if metric.kind not in kinds:
        *most, last = kinds
        return [f": repeat: kind {metric.kind!r} must be {', '.join(most)} or {last}"]
    if metric.kind != "every" and metric.limit != 1:
        return [f": repeat: {metric.kind} is once a period, not {metric.limit} times"]
    if metric.type == "top_item" and metric.kind != "first":
        return [": repeat: a top item is one a period, so that it must be {once: first}"]
    return _constant_problems(metric) if metric.kind == "constant" else []


def _constant_problems(metric: CompiledMetric) -> list[str]:
    """Of a value that is hidden once, and noise added to that in every period."""
    from mechanisms.constant import supports_constant

    name = metric.spec.get("name")
    if not supports_constant(metric.spec):
        return [
            f": repeat: {name} cannot be constant: its public coins change with the period, and a "
            f"permanent response was drawn under those of the first"
        ]
    if len(metric.ladder) < 2:
        return [
            ": repeat: a constant metric has at least two rungs, the last of which is its "
            "permanent response and is never sent"
        ]
    *_, sent, permanent = metric.ladder
    if permanent.after != sent.after:
        return [
            f", rung {len(metric.ladder)}: after {duration_text(permanent.after)} must be rung "
            f"{len(metric.ladder) - 1}'s {duration_text(sent.after)}: the permanent response of a "
            f"constant metric is never sent"
        ]
    return []


def _ladder_problems(plan: CompiledPlan, metric: CompiledMetric) -> list[str]:
    ladder = metric.ladder
    if not 1 <= len(ladder) <= MAX_RUNGS:
        return [f": a ladder has 1 to {MAX_RUNGS} rungs, not {len(ladder)}"]
    problems = []
    for number, rung in enumerate(ladder, start=1):
        if not 0 < rung.epsilon <= MAX_CEILING:
            problems.append(f", rung {number}: epsilon {amount(rung.epsilon)} must be above 0")
        if not 0 <= rung.after <= MAX_DURATION:
            problems.append(
                f", rung {number}: after {duration_text(rung.after)} must be in [0ms, 36525d]"
            )
    for number, (weak, strong) in enumerate(pairwise(ladder), start=1):
        if not strong.epsilon > weak.epsilon:
            problems.append(
                f", rung {number + 1}: epsilon {amount(strong.epsilon)} must be greater than "
                f"rung {number}'s {amount(weak.epsilon)}"
            )
        if not strong.after >= weak.after:
            problems.append(
                f", rung {number + 1}: after {duration_text(strong.after)} must be at least "
                f"rung {number}'s {duration_text(weak.after)}"
            )
    if metric.kind == "reservoir" and ladder[0].after < plan.period:
        problems.append(
            f", rung 1: after {duration_text(ladder[0].after)} must be at least the period, "
            f"{duration_text(plan.period)}: a reservoir may replace its value until that ends"
        )
    return problems


def _mechanism_problems(metric: CompiledMetric) -> list[str]:
    try:
        mechanism = metric.mechanism
    except ParameterError as error:
        return [f": {error}"]
    problems = []
    if not 0 < mechanism.payload_width <= 0xFFFF:
        problems.append(f": payloads of {mechanism.payload_width} bytes; at most 65535 are allowed")
    if mechanism.count_length > MAX_COUNTS:
        problems.append(f": {mechanism.count_length} counts; at most {MAX_COUNTS} are allowed")
    windows = open_windows(metric.horizon, metric.window)
    cells = windows * len(metric.ladder) * mechanism.count_length
    if cells > MAX_OPEN_COUNTS:
        problems.append(
            f": {windows} windows of {duration_text(metric.window)} within the horizon of "
            f"{duration_text(metric.horizon)}, times {len(metric.ladder)} rungs, times "
            f"{mechanism.count_length} counts, are {cells} counts; at most {MAX_OPEN_COUNTS} are "
            f"allowed"
        )
    before = 0
    for level, rung in enumerate(metric.ladder):
        certified = mechanism.certified(level)
        if not before < certified <= rung.epsilon:
            problems.append(
                f", rung {level + 1}: certified epsilon {amount(certified)} must be above "
                f"{amount(before)} and at most the nominal {amount(rung.epsilon)}"
            )
        before = certified
    return problems


def open_windows(horizon: int, window: int) -> int:
    """Return to how many windows a report may still belong, whatever part of the first is over.

    >>> open_windows(15, 7)
    4
    """
    return max(-(-horizon // window) + 1, 1)


def _ceiling_problems(plan: CompiledPlan) -> list[str]:
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
