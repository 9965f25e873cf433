"""Collection plans: what is collected, how it is hidden, and what that may cost.

A plan is a YAML file (``docs/formats.md``). :func:`load_plan` reads it, makes every choice that
it leaves open, and refuses it unless it can be honoured; :meth:`Plan.compile` returns what
devices and aggregators read. Needs the extra ``plan``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sotto.checks import check
from sotto.chooser import Choice, choose_category, choose_number
from sotto.compiled import FORMAT, CompiledPlan
from sotto.documents import plan_of
from sotto.errors import PlanError
from sotto.planfile import (
    BooleanFile,
    CategoryFile,
    MetricFile,
    NumberFile,
    PlanFile,
    StringFile,
    read_plan,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Plan:
    """A plan that can be honoured.

    Attributes
    ----------
    compiled : CompiledPlan
    candidates : mapping of str to tuple of str
        Of each string metric that names a file of them: the strings that its reports are tested
        for. No part of the compiled plan: devices do not need them.
    chosen : mapping of str to str
        Of each metric whose mechanism was left open: why it has the one that it has.
    """

    compiled: CompiledPlan
    candidates: Mapping[str, tuple[str, ...]]
    chosen: Mapping[str, str]

    def compile(self) -> CompiledPlan:
        """Return the plan as devices and aggregators read it."""
        return self.compiled


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file and check that the plan can be honoured.

    Parameters
    ----------
    path : path
        A YAML file. Files of candidates are relative to it.

    Raises
    ------
    PlanError
        A line for every problem: the metric, the rung, what was found and what is allowed.
    OSError
        The file cannot be read.
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
        spec, why = _mechanism(metric, name)
        if why:
            chosen[name] = why
        metrics.append(_metric_document(name, metric, spec))
        if isinstance(metric, StringFile) and metric.candidates is not None:
            candidates[name] = _read_candidates(Path(folder) / metric.candidates, name)
    compiled = plan_of(_plan_document(file, metrics))
    check(compiled)
    return Plan(compiled, candidates, chosen)


def _plan_document(file: PlanFile, metrics: list[dict[str, object]]) -> dict[str, object]:
    try:
        end = datetime.combine(file.expires, datetime.min.time(), UTC) + timedelta(days=1)
    except OverflowError:
        raise PlanError(f"expires {file.expires} must be before the year 9999 ends") from None
    return {
        "format": FORMAT,
        "collector": file.collector,
        "plan": file.plan,
        "version": file.version,
        "owner": file.owner,
        # The plan is valid through the end of that day.
        "expires": (end - _EPOCH) // timedelta(milliseconds=1),
        "period": file.period,
        "resolution": file.resolution,
        "grace": file.grace,
        "retention": file.retention,
        "shards": file.shards,
        "ceilings": file.ceilings.model_dump(),
        "metrics": metrics,
    }


def _metric_document(
    name: str, metric: MetricFile, spec: dict[str, str | int | bool]
) -> dict[str, object]:
    document: dict[str, object] = {
        "name": name,
        "type": metric.type,
        "mechanism": spec,
        "missing": metric.missing,
        "window": metric.window,
        "repeat": {"kind": metric.repeat.kind, "limit": metric.repeat.limit},
        "ladder": [rung.model_dump() for rung in metric.ladder],
    }
    if isinstance(metric, CategoryFile):
        document |= {"domain": list(metric.domain), "outside": metric.outside}
    if isinstance(metric, NumberFile):
        document |= {"range": list(metric.range), "outside": metric.outside}
        if metric.unit is not None:
            document["unit"] = metric.unit
    return document


def _mechanism(metric: MetricFile, name: str) -> Choice:
    """Return the mechanism that a metric names, or the one chosen for it and why."""
    ladder = [rung.epsilon for rung in metric.ladder]
    if isinstance(metric, StringFile):
        bloom = {"bits": metric.bits, "hashes": metric.hashes, "cohorts": metric.cohorts}
        why = "" if metric.mechanism else "the mechanism for strings that are not known in advance"
        return Choice({"name": "rappor", **bloom}, why)
    if isinstance(metric, NumberFile):
        if metric.mechanism is None:
            return choose_number(metric.missing, ladder)
        if metric.mechanism == "threshold":
            return Choice({"name": "threshold", "missing": metric.missing}, "")
        bits = {"sampled": "sampled_bit", "split": "split_bits"}[metric.mechanism.bit_aware]
        return Choice({"name": bits, "bits": metric.mechanism.bits, "missing": metric.missing}, "")
    size = _symbols(metric)
    if metric.mechanism is not None:
        return Choice({"name": metric.mechanism, "domain_size": size}, "")
    try:
        return choose_category(size, ladder, name)
    except PlanError:
        # Which rung or size it is about is said by the checks, as if grr had been asked for.
        return Choice({"name": "grr", "domain_size": size}, "")


def _symbols(metric: CategoryFile | BooleanFile) -> int:
    if isinstance(metric, BooleanFile):
        return 2 + metric.missing
    return len(metric.domain) + (metric.outside not in metric.domain) + metric.missing


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
    (most, times), *_ = Counter(candidates).most_common(1) or [("", 0)]
    if times > 1:
        raise PlanError(f"metric {metric!r}: candidate {most!r} is in {path.name} twice")
    if not candidates:
        raise PlanError(f"metric {metric!r}: {path.name} has no candidates")
    return tuple(candidates)
