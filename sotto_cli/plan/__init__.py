"""Check a collection plan, compile it, write what people are told, or a typed module for apps.

A plan says what is collected, how each value is hidden, and what that may cost a person. It is
written in YAML; devices and aggregators read the JSON that it is compiled to.

examples:
  sotto plan check plan.yaml
      what is collected, by which mechanism, and what it costs against the ceilings
  sotto plan check plan.json
      the same of a compiled plan
  sotto plan check --strict --warn-value 2 plan.yaml
      fail, for CI, if a value can cost more than 2, a period more than 8 for each of its days,
      or the lifetime's ceiling does not last for 2 years and until the plan expires
  sotto plan compile plan.yaml
      write plan.json beside it and print its fingerprint
  sotto plan compile plan.yaml -o - > compiled.json
      write it to standard output, and the fingerprint to standard error
  sotto plan compile --development plan.yaml
      write plan.dev.json, under which a budget period lasts a minute, of a collector of its own
  sotto plan fingerprint plan.yaml
      print the fingerprint, by which an app that fetches its plan pins it; with --document a
      digest that pins its texts and dates too
  sotto plan disclose plan.yaml
      what a person should read before agreeing; figures follow from the certified epsilons
  sotto plan disclose plan.yaml --format apple -o PrivacyInfo.xcprivacy
      a draft of the file that Apple asks for; policy, dpia and google are other formats
  sotto plan generate plan.yaml -o metrics.py
      write a Python module with the compiled plan inside and a typed attribute a metric
  sotto plan generate --sdk sottovoce plan.yaml -o metrics.py
      the same for an app that ships the package sottovoce
  sotto plan sampler plan.yaml -o sampler.json
      write the integers that devices compare random words with, for clients in other languages
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from sotto.columns import columns, table
from sotto.errors import ParameterError, PlanError
from sotto.exit_status import ExitStatus
from sotto.plan.checks import amount
from sotto.plan.durations import duration_text
from sotto.plan.files import plan_of
from sotto_cli import options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sotto.plan.compiled import CompiledMetric, CompiledPlan


#: Of how many reports the detection floors in a plan's description are.
REPORTS = 10_000
#: What ``disclose`` writes.
_FORMATS = {
    "consent": "what a dialogue asks",
    "policy": "a paragraph for a privacy policy",
    "dpia": "tables for an impact assessment (Markdown)",
    "apple": "PrivacyInfo.xcprivacy",
    "google": "answers for the Data safety form (CSV)",
}
#: How parameters are said whose names do not follow a number well.
_PARAMETERS = {
    "domain_size": "{} symbols",
    "subset_size": "sets of {}",
    "clip": "at most {} of each",
    "count": "{} a report",
    "unrelated": "{} % yes to the other question",
    "cards": "cards {}",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    to_output = "standard output"
    compiled = "the plan's name with .json or .dev.json"
    outputs = {
        _compile: compiled,
        _generate: to_output,
        _disclose: to_output,
        _sampler: to_output,
    }
    for action, help in (
        (_check, "print what a plan collects and what it costs"),
        (_compile, "write the JSON that devices and aggregators read"),
        (_fingerprint, "print the fingerprint that an app pins"),
        (_generate, "write a Python module with a typed attribute for each metric"),
        (_disclose, "write what people, lawyers and stores are to be told"),
        (_sampler, "write the integers of its samplers, for clients in other languages"),
    ):
        name = action.__name__.removeprefix("_")
        command = actions.add_parser(name, help=help, description=action.__doc__)
        command.set_defaults(action=action)
        command.add_argument("plan", type=Path, help="a plan (YAML), or a compiled one (.json)")
        if action in outputs:
            written = f"where to write; {outputs[action]} if left out, standard output for -"
            command.add_argument("-o", "--output", metavar="FILE", help=written)
        if action is _generate:
            imported = "what the module imports: sottovoce if the app ships that; default clientsdk"
            names = ("clientsdk", "sottovoce")
            command.add_argument("--sdk", choices=names, default=names[0], help=imported)
        if action is _compile:
            fast = "for trials: a budget period lasts a minute, and no real collector takes reports"
            options.add(command, "--development", fast)
        if action is _fingerprint:
            whole = "the SHA-256 of the whole document instead, which also pins texts and dates"
            options.add(command, "--document", whole)
        if action in (_check, _compile):
            _add_warnings(command)
        if action is _disclose:
            what = "; ".join(f"{name}: {text}" for name, text in _FORMATS.items())
            options.add(command, "--format NAME", what, "consent", choices=_FORMATS)


def _add_warnings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is warned of, on standard error")
    for name, default, what in (
        ("value E", 4.0, "epsilon a value"),
        ("day E", 8.0, "epsilon of a period, for each of its days"),
        ("years Y", 2.0, "years that the lifetime's ceiling lasts"),
    ):
        options.add(group, f"--warn-{name}", what, default, type=options.above_zero)
    options.add(group, "--strict", "exit with status 1 if there is a warning")


def run(args: argparse.Namespace) -> int:
    status: int = args.action(args)
    return status


def _check(args: argparse.Namespace) -> int:
    """Refuse a plan that cannot be honoured; otherwise print what it means."""
    plan, _, chosen = plan_of(args.plan)
    print("\n".join(_report(plan, chosen)), flush=True)
    _refuse_ended(plan)
    return _warned(plan, args)


def _refuse_ended(plan: CompiledPlan) -> None:
    """Raise PlanError for a plan that has ended."""
    from sotto.clocks import now_ms

    if plan.expired(now := now_ms()):
        raise PlanError(plan.ending(now))


def _warned(plan: CompiledPlan, args: argparse.Namespace) -> int:
    """Warn of what a plan asks much of; return the exit status."""
    from sotto.clocks import now_ms
    from sotto.design import segments
    from sotto.design.spending import Levels, warnings
    from sotto_cli.plan import linking

    found = warnings(plan, Levels(args.warn_value, args.warn_day, args.warn_years), now_ms())
    found += linking.warnings(plan.metrics) + segments.warnings(plan)
    found += filter(None, [plan.ending(now_ms())])
    sys.stdout.flush()
    for line in found:
        options.warn(line)
    return ExitStatus.found(found and args.strict)


def _compile(args: argparse.Namespace) -> int:
    """Compile a plan to canonical JSON and print its fingerprint."""
    from sotto.plan.development import development_plan

    plan = plan_of(args.plan).plan
    _refuse_ended(plan)
    compiled = development_plan(plan) if args.development else plan
    ending = ".dev.json" if args.development else ".json"
    output = args.output or args.plan.with_suffix(ending)
    _write(args.plan, output, compiled.to_json())
    print(compiled.fingerprint_hex, file=sys.stderr if output == "-" else sys.stdout)
    return _warned(plan, args)


def _fingerprint(args: argparse.Namespace) -> int:
    """Print what names the plan on the wire, for Client(..., expect=...)."""
    plan = plan_of(args.plan).plan
    print(plan.digest.hex() if args.document else plan.fingerprint_hex)
    return 0


def _generate(args: argparse.Namespace) -> int:
    """Write a Python module for apps: the compiled plan, and its metrics, typed."""
    from sotto.plan.generate import module_text

    return _write_part(args, lambda plan: module_text(plan, args.sdk).encode("utf-8"))


def _sampler(args: argparse.Namespace) -> int:
    """Write the integers that follow from a plan, for clients that do not compute them."""
    from sotto.plan.sampler import sampler_json

    return _write_part(args, sampler_json)


def _write_part(args: argparse.Namespace, made: Callable[[CompiledPlan], bytes]) -> int:
    """Write what is made of a plan, and print the fingerprint if that goes to a file."""
    plan = plan_of(args.plan).plan
    output = args.output or "-"
    _write(args.plan, output, made(plan))
    if output != "-":
        print(plan.fingerprint_hex)
    return 0


def _disclose(args: argparse.Namespace) -> int:
    """Write what a plan collects, in the words of those who must be told. It is a draft: whoever
    answers for the app reads it first. Figures follow from the plan's certified epsilons; what the
    plan does not say, such as a legal basis, is left to be filled in."""
    from sotto.disclosure import forms, texts

    plan = plan_of(args.plan).plan
    if args.format == "apple":
        made = forms.apple_manifest(plan)
    else:
        text = {
            "consent": texts.consent_text,
            "policy": texts.policy_text,
            "dpia": forms.assessment,
            "google": forms.google_answers,
        }[args.format](plan)
        made = text.encode("utf-8")
    _write(args.plan, args.output or "-", made)
    for line in forms.gaps(plan, args.format):
        options.warn(line)
    return 0


def _write(plan: Path, output: str | Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it; ``-`` is standard output."""
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    path = Path(output)
    if path.resolve() == plan.resolve():
        raise ParameterError(f"{path} is the plan itself: name another file with -o")
    if not path.absolute().parent.is_dir():
        raise ParameterError(f"{path} cannot be written: there is no such folder; make it first")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _report(plan: CompiledPlan, chosen: Mapping[str, str]) -> list[str]:
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
                "mechanism": _mechanism,
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
        *table(["metric", "a report", "reports a period", "a period"], _costs(plan)),
        "",
        *_ceilings(plan),
        _authentication(plan),
        *_segments(plan),
        "",
        *_least_reports(plan),
        "",
        "Amounts are epsilon; 'certified' is the exact worst-case loss and what is charged. 'A lie",
        "counts': a share s of forged reports moves a share, or a mean in parts of its range, by",
        "up to s times this (a mean of numbers that can be missing: divided by the share present).",
        "Where it is blank no such bound is known, nor is one for quantiles, points of a",
        "distribution and single bits, which fewer reports are about.",
        "",
        "What the reports show:",
        *(f"  {metric.name}: {what_reports_show(metric)}" for metric in plan.metrics),
    ]
    if chosen:
        lines += ["", "Mechanisms that the plan left open:"]
        lines += [f"  {name}: {why}" for name, why in chosen.items()]
    return lines


def _mechanism(metric: CompiledMetric) -> str:
    texts = {**_PARAMETERS, **metric.mechanism.words}
    parameters = [
        texts.get(key, "{} " + key).format(
            " ".join(map(str, value)) if isinstance(value, tuple) else value
        )
        for key, value in metric.parameters
        if type(value) in (int, tuple)
    ]
    return metric.mechanism.name + (f" ({', '.join(parameters)})" if parameters else "")


def _levels(metric: CompiledMetric) -> list[list[str]]:
    return [
        [
            metric.name if level == 0 else "",
            str(level + 1),
            duration_text(each.after) if level < metric.sent else "never",
            amount(each.epsilon),
            amount(metric.mechanism.certified(level)),
            "" if (lie := metric.mechanism.influence(level)) is None else f"{lie:.2f}x",
        ]
        for level, each in enumerate(metric.ladder)
    ]


def _costs(plan: CompiledPlan) -> list[list[str]]:
    rows = [
        [metric.name, amount(metric.cost // metric.limit), str(metric.limit), amount(metric.cost)]
        for metric in plan.metrics
    ]
    return [*rows, ["all", "", str(sum(m.limit for m in plan.metrics)), amount(plan.cost)]]


def _authentication(plan: CompiledPlan) -> str:
    if plan.signed:
        return "messages are signed: nobody else can add a report to a device's pseudonym"
    return "messages are not signed: who can append and has seen pseudonyms can have them revoked"


def _segments(plan: CompiledPlan) -> list[str]:
    from sotto.design.segments import lines

    return ["", *found] if (found := lines(plan)) else []


def _ceilings(plan: CompiledPlan) -> list[str]:
    from sotto.design.spending import in_words, lifetime_of

    lines = [
        f"ceiling of a period ({duration_text(plan.period)}): {amount(plan.ceilings.period)}, "
        f"of which {amount(plan.cost)} can be spent"
    ]
    lifetime = f"ceiling of a lifetime: {amount(plan.ceilings.lifetime)}"
    if plan.permanent:
        each = ", ".join(f"{m.name} {amount(m.permanent)}" for m in plan.metrics if m.permanent)
        lifetime += f", of which permanent responses take {amount(plan.permanent)} once ({each})"
    if not plan.recurring:
        return [*lines, f"{lifetime}, never reached"]
    periods = lifetime_of(plan).periods or 0
    reached = f"reached after {periods} periods ({duration_text(periods * plan.period)})"
    outlook = [
        part
        for line in in_words(plan)
        for part in wrap(line, 92, initial_indent="  ", subsequent_indent="    ")
    ]
    return [*lines, f"{lifetime}, {reached}", *outlook]


def what_reports_show(metric: CompiledMetric) -> str:
    """Return what the reports of a metric show, and how many it takes to notice what share."""
    text = metric.mechanism.gives.format(
        symbols=f"{len(metric.labels)} symbols",
        question=metric.question,
        **metric.mechanism.figures(metric.sent - 1),
        **metric.spec,
    )
    floor = detection_floor(metric, REPORTS)
    if floor is not None:
        text += f"; {REPORTS:,} reports distinguish a share of {100 * floor:.2g} % from none"
    if metric.permanent:
        text += "; one value for the device's life, whose permanent response is never sent"
    return text


def detection_floor(metric: CompiledMetric, reports: int) -> float | None:
    """Return the least true share that so many reports of the last level sent can show.

    None where the estimates are no shares, or none of which it can be said.
    """
    from mechanisms.estimate import ShareNoise

    said = metric.mechanism.noise(metric.sent - 1)
    if said is None or metric.type not in ("category", "boolean", "ordinal", "survey"):
        return None
    slope = said.yes - said.no
    return ShareNoise(reports, reports * said.no, ((reports, slope),), said.step).detection_floor


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
