"""A plan's meaning, in lines: what it collects, and what that costs against the ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from unicodedata import normalize

from mechanisms.estimate import ShareNoise
from mechanisms.registry import mechanism_class
from sotto.columns import columns, table
from sotto.design import segments, spending
from sotto.plan.checks import amount
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import duration_text

#: The number of reports that the detection floors in a plan's description are of.
REPORTS = 10_000
_NOTE = """\
Amounts are epsilon; 'certified' is the exact worst-case loss and what is charged. 'A lie
counts': a share s of forged reports moves a share, or a mean in parts of its range, by
up to s times this (a mean of numbers that can be missing: divided by the share present).
Where it is blank no such bound is known, nor is one for quantiles, points of a
distribution and single bits, which fewer reports are about."""
#: How parameters are said whose names do not follow a number well.
_PARAMETERS = {
    "domain_size": "{} symbols",
    "subset_size": "sets of {}",
    "clip": "at most {} of each",
    "count": "{} a report",
    "unrelated": "{} % yes to the other question",
    "cards": "cards {}",
}


def warnings(plan: CompiledPlan, levels: spending.Levels, now: int) -> list[str]:
    """Return what a plan asks much of, of a device that begins at ``now`` (ms), a line each."""
    found = spending.warnings(plan, levels, now) + segments.warnings(plan)
    named = [*plan.segments, *((each.name, each.domain or ()) for each in plan.metrics)]
    found += [
        f"{name}: the value {value!r} has blanks at an end, or accents apart from their letters "
        "(NFD): an app must record it written the same"
        for name, values in named
        for value in values
        if value != normalize("NFC", value.strip())
    ]
    found += [
        f"metric {each.name!r}: level {level} is never sent: give level {level + 1} a later 'after'"
        for each in plan.metrics
        for level in range(1, each.sent)
        if each.ladder[level].after == each.ladder[level - 1].after
    ]
    return [*found, *filter(None, [plan.ending(now)])]


def description(plan: CompiledPlan, chosen: Mapping[str, str]) -> list[str]:
    """Return all that a plan means; ``chosen``: why mechanisms were, by metric."""
    crossed = segments.lines(plan)
    signed = "nobody else can add a report to a device's pseudonym"
    if not plan.signed:
        signed = "who can append and has seen pseudonyms can have them revoked"
    lines = [
        f"plan {plan.plan}, version {plan.version}, of collector {plan.collector}",
        f"fingerprint {plan.fingerprint_hex}",
        f"owner {plan.owner}",
        "",
        *columns(
            plan.metrics,
            {
                "metric": lambda metric: metric.name,
                "type": lambda metric: metric.type,
                "mechanism": lambda metric: mechanism_text(metric.spec),
                "payload": lambda metric: f"{metric.mechanism.payload_width} B",
                "window": lambda metric: duration_text(metric.window),
            },
        ),
        "",
        *table(
            ["metric", "level", "sent after", "nominal", "certified", "a lie counts"],
            (row for metric in plan.metrics for row in _levels(metric)),
        ),
        "",
        *spent_lines(plan),
        f"messages are {'' if plan.signed else 'not '}signed: {signed}",
        *([""] if crossed else []),
        *crossed,
        "",
        *_least_reports(plan),
        "",
        *_NOTE.splitlines(),
        "",
        "What the reports show:",
        *(f"  {metric.name}: {what_reports_show(metric)}" for metric in plan.metrics),
    ]
    said = {each: each.measure.in_words() for each in plan.measured if each.measure is not None}
    stored = [each for each in said if each.stored]
    if stored:
        lines += ["", "What devices measure; true values are in their files until they are drawn:"]
        lines += [f"  {metric.name}: {said[metric]}" for metric in stored]
    if len(stored) < len(said):
        lines += [
            "",
            "What devices measure by a randomized response, the last level, in their files:",
        ]
        lines += [
            f"  {metric.name}: {said[metric]}; a theft of the file tells at most epsilon "
            f"{amount(metric.mechanism.certified())}, with all reports "
            f"{amount(spending.theft(metric))}; two thefts may show for certain that it was used "
            "in between"
            for metric in said
            if metric.holds_response
        ]
    if chosen:
        lines += ["", "Mechanisms that the plan left open:"]
        lines += [f"  {name}: {why}" for name, why in chosen.items()]
    return lines


def mechanism_text(spec: Mapping[str, object]) -> str:
    """Return a mechanism and its parameters, in words.

    >>> mechanism_text({"name": "hybrid", "points": 65, "missing": False})
    'hybrid (65 points)'
    """
    texts = {**_PARAMETERS, **mechanism_class(spec["name"]).words}
    parameters = [
        texts.get(key, "{} " + key).format(
            " ".join(map(str, value)) if isinstance(value, tuple) else value
        )
        for key, value in spec.items()
        if type(value) in (int, tuple)
    ]
    return f"{spec['name']}" + (f" ({', '.join(parameters)})" if parameters else "")


def _levels(metric: CompiledMetric) -> list[list[str]]:
    return [
        [
            metric.name if level == 0 else "",
            str(level + 1),
            duration_text(each.after) if level < metric.sent else "never",
            amount(each.epsilon),
            amount(metric.mechanism.certified(level)),
            "" if (reach := metric.mechanism.reach(level)) is None else f"{max(reach):.2f}x",
        ]
        for level, each in enumerate(metric.ladder)
    ]


def spent_lines(plan: CompiledPlan) -> list[str]:
    """Return what reports, periods and a lifetime cost, and that against the ceilings."""
    periods, lifetimes, rows = spending.lifetime_of(plan).periods or 0, 0, []
    for metric in plan.metrics:
        lifetime = metric.permanent or periods // metric.panel * metric.cost
        costs = (metric.cost // metric.limit, metric.cost, lifetime)
        report, period, ever = map(amount, costs)
        rows.append([metric.name, report, str(metric.limit), period, ever])
        lifetimes += lifetime
    reports = str(sum(metric.limit for metric in plan.metrics))
    rows.append(["all", "", reports, amount(plan.cost), amount(lifetimes)])
    head = ["metric", "a report", "reports a period", "a period", "a lifetime"]
    lines = [
        *table(head, rows),
        "",
        f"ceiling of a period ({duration_text(plan.period)}): {amount(plan.ceilings.period)}, "
        f"of which {amount(plan.cost)} can be spent",
    ]
    said = f"ceiling of a lifetime: {amount(plan.ceilings.lifetime)}"
    if plan.permanent:
        each = ", ".join(f"{m.name} {amount(m.permanent)}" for m in plan.metrics if m.permanent)
        said += f", of which permanent responses take {amount(plan.permanent)} once ({each})"
    if not plan.recurring:
        return [*lines, f"{said}, never reached"]
    lines.append(
        f"{said}, reached after {periods} periods ({duration_text(periods * plan.period)})"
    )
    for line in spending.in_words(plan):
        lines += wrap(line, 92, initial_indent="  ", subsequent_indent="    ")
    return lines


def what_reports_show(metric: CompiledMetric) -> str:
    """Return what the reports of a metric show, and how many it takes to notice what share."""
    text = metric.mechanism.gives.format(
        symbols=f"{len(metric.labels)} symbols",
        question=metric.question,
        **metric.mechanism.figures(metric.sent - 1),
        **metric.spec,
    )
    if (floor := share_floor(metric, REPORTS)) is not None:
        text += f"; {REPORTS:,} reports distinguish a share of {100 * floor:.2g} % from none"
    if metric.permanent:
        text += "; one value for the device's life, whose permanent response is never sent"
    return text


def share_floor(metric: CompiledMetric, reports: int) -> float | None:
    """Return the least true share that so many reports of the last level sent can show.

    None where the estimates are no shares, or none of which it can be said.
    """
    said = metric.mechanism.noise(metric.sent - 1)
    if said is None or metric.type not in ("category", "boolean", "ordinal", "survey"):
        return None
    slope = said.yes - said.no
    return ShareNoise(reports, reports * said.no, ((reports, slope),), said.step).floor


def _least_reports(plan: CompiledPlan) -> list[str]:
    """Return what the plan's ``minimum_reports`` means, in lines."""
    least = plan.minimum_reports
    if least == 1:
        return [
            "minimum_reports 1: nothing is withheld. A window of one report is published, and who",
            "reads the results then sees what that device sent.",
        ]
    few = [
        f"{metric.name} {-(-least // most):,}"
        for metric in plan.metrics
        if (most := metric.limit * plan.periods_in(metric)) > 1
    ]
    lines = [f"minimum_reports {least:,}: an estimate of fewer reports is withheld."]
    if few:
        lines = [
            f"{lines[0]} A device can send several",
            f"in a window, so that as few devices as these can reach it: {', '.join(few)}.",
        ]
    needed = [
        f"{metric.name} {least * metric.mechanism.groups:,}"
        for metric in plan.metrics
        if metric.mechanism.groups > 1
    ]
    if needed:
        lines += [
            "A level of strings or local hashing counts once each cohort, or line of hashes, has",
            f"as many, which takes more reports than these: {', '.join(needed)}.",
        ]
    return lines
