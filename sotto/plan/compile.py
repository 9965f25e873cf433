"""Collection plans: what is collected, how it is hidden, and what that may cost.

A plan is a YAML file (``docs/guides/plan.md``). :func:`load_plan` reads it, makes every choice that
it leaves open, and refuses it unless it can be honoured; :meth:`Plan.compile` returns what
devices and aggregators read. Needs the extra ``plan``.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from sotto.errors import ParameterError, PlanError
from sotto.plan.checks import MAX_OPEN_COUNTS, open_windows
from sotto.plan.choice import Asked, Choice, choose, spec_of
from sotto.plan.compiled import FORMAT, CompiledPlan, Plan, check
from sotto.plan.document import LevelFile, MetricFile, NumberFile, PlanFile, StringFile, read_plan
from sotto.plan.fields import in_json
from sotto.plan.metric import Parameter
from sotto.plan.segments import Experiment, attributes_of, cells

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file and check that the plan can be honoured.

    It is YAML; files of candidates are relative to it. Raises PlanError with a line for every
    problem: the metric, the level, what was found and what is allowed.
    """
    return parse_plan(_read_text(Path(path)), Path(path).parent)


def parse_plan(text: str, folder: str | os.PathLike[str] = ".") -> Plan:
    """Do the same as :func:`load_plan` for the text of a plan file.

    Examples
    --------
    >>> plan = parse_plan('''
    ... collector: fleet.example
    ... plan: departures
    ... version: 1
    ... owner: telemetry@fleet.example
    ... expires: 2027-06-30
    ... period: 7d
    ... ceilings: {period: 2, lifetime: 104}
    ... resolution: 1h
    ... metrics:
    ...   late: {type: boolean, window: 28d, ladder: [{epsilon: 0.5}, {epsilon: 2, after: 7d}]}
    ... ''')
    >>> plan.compile().metric("late").mechanism.name
    'grr'
    """
    file = read_plan(text)
    candidates: dict[str, tuple[str, ...]] = {}
    chosen: dict[str, str] = {}
    metrics = []
    for name, metric in file.metrics.items():
        spec, why = _mechanism(file, metric, name)
        if why:
            chosen[name] = why
        metrics.append(_metric_document(name, metric, spec, metric.panel or file.panel))
        if isinstance(metric, StringFile) and metric.candidates is not None:
            candidates[name] = _read_candidates(Path(folder) / metric.candidates, name)
    compiled = CompiledPlan.of_document(_plan_document(file, metrics))
    check(compiled)
    return Plan(compiled, candidates, chosen)


def _plan_document(file: PlanFile, metrics: list[dict[str, object]]) -> dict[str, object]:
    fields = file.model_dump(exclude={"metrics", "panel", "segments", "experiment"})
    segments = [{"name": name, "values": [*values]} for name, values in file.segments.items()]
    experiment, planned = file.experiment, file.experiment and file.experiment.decision
    return {
        **{name: value for name, value in fields.items() if value is not None},
        "format": FORMAT,
        # The plan is valid through the end of that day.
        "expires": _midnight("expires", file.expires, 1),
        "metrics": metrics,
        "segments": segments,
        "experiment": experiment
        and {**experiment.model_dump(exclude={"decision"}), "arms": [*experiment.arms]},
        "decision": planned
        and {
            **planned.model_dump(),
            "start": _midnight("start", planned.start),
            "end": _midnight("end", planned.end, 1),
        },
    }


def _midnight(name: str, day: date, after: int = 0) -> int:
    """Return when a day begins, or so many days after it (ms)."""
    try:
        found = datetime.combine(day, datetime.min.time(), UTC) + timedelta(days=after)
    except OverflowError:
        raise PlanError(f"{name} {day} must be before the year 9999 ends") from None
    return (found - _EPOCH) // timedelta(milliseconds=1)


def _metric_document(
    name: str, metric: MetricFile, spec: dict[str, Parameter], panel: int
) -> dict[str, object]:
    said = {key: value for key, value in metric.details.items() if value is not None}
    return {
        **{key: in_json(value) for key, value in said.items() if key != "panel"},
        "name": name,
        "mechanism": {key: in_json(value) for key, value in spec.items()},
        "repeat": {"kind": metric.repeat.kind, "limit": metric.repeat.limit},
        "ladder": [level.model_dump() for level in _ladder(metric)],
        **({"panel": panel} if panel > 1 else {}),
    }


def _ladder(metric: MetricFile) -> tuple[LevelFile, ...]:
    """Return the levels; a response without a delay has that of the level before it."""
    *others, last = metric.ladder or (None,)
    if last is None or not others or not metric.holds_response or last.after:
        return metric.ladder
    return (*metric.ladder[:-1], last.model_copy(update={"after": metric.ladder[-2].after}))


def _mechanism(file: PlanFile, metric: MetricFile, name: str) -> Choice:
    """Return the mechanism that a metric names, or the one chosen for it and why."""
    ladder = tuple(level.epsilon for level in metric.ladder)
    counts = _counts(file, metric)
    quantiles = isinstance(metric, NumberFile) and metric.quantiles
    # A measured ordinal is hidden by grr, which has no answer for a missing value.
    measured = metric.measure is not None and not metric.missing
    held = metric.holds_response
    asked = Asked(metric.type, metric.given, ladder, name, held, counts, quantiles, measured)
    try:
        if metric.mechanism is None:
            return choose(asked)
        return Choice(spec_of(metric.mechanism.name, asked, metric.mechanism.parameters), "")
    except ParameterError as error:
        raise PlanError(f"metric {name!r}: {error}") from None


def _counts(file: PlanFile, metric: MetricFile) -> int | None:
    """Return how long a count vector may be for those that are open at a time to fit."""
    if not (metric.ladder and metric.window > 0):
        return None
    horizon = metric.ladder[-1].after + file.period + file.grace
    said = file.experiment
    experiment = None if said is None else Experiment(said.name, said.arms, said.share)
    of_plan = cells(attributes_of(file.segments.items(), experiment))
    open_counts = open_windows(horizon, metric.window) * len(metric.ladder) * max(of_plan, 1)
    return MAX_OPEN_COUNTS // open_counts


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise PlanError(f"{path.name} is not text in UTF-8") from None


def _read_candidates(path: Path, metric: str) -> tuple[str, ...]:
    """Read candidates: one a line, empty lines and those that begin with ``#`` left out."""
    try:
        text = _read_text(path)
    except OSError as error:
        raise PlanError(
            f"metric {metric!r}: candidates {path.name!r} cannot be read: {error.strerror}"
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    candidates = [line for line in lines if line and not line.startswith("#")]
    if "\0" in text:
        raise PlanError(
            f"metric {metric!r}: {path.name} has a NUL character, which text cannot have"
        )
    (most, times), *_ = Counter(candidates).most_common(1) or [("", 0)]
    if times > 1:
        raise PlanError(f"metric {metric!r}: candidate {most!r} is repeated in {path.name}")
    if not candidates:
        raise PlanError(f"metric {metric!r}: {path.name} has no candidates")
    return tuple(candidates)
