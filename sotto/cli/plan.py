"""Check a collection plan, compile it, and make a module of it.

A plan says what is collected, how each value is hidden, and what that may cost a person. It is
written in YAML; devices and aggregators read the JSON that it is compiled to.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from sotto.cli.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sotto.plan.compiled import CompiledMetric, CompiledPlan

HELP = "check a collection plan, compile it, or write a typed module for apps"

_EXAMPLES = """\
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
  sotto plan fingerprint plan.yaml
      print the fingerprint, by which an app that fetches its plan pins it
  sotto plan generate plan.yaml -o metrics.py
      write a Python module with the compiled plan inside and a typed attribute a metric
"""


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
    """Declare the arguments of ``sotto plan``."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="print what a plan collects and what it costs",
        description="Refuse a plan that cannot be honoured; otherwise print what it means.",
    )
    check.add_argument("plan", type=Path, help="a plan (YAML), or a compiled one (.json)")
    _add_levels(check)
    check.set_defaults(action=_check)
    compile_ = actions.add_parser(
        "compile",
        help="write the JSON that devices and aggregators read",
        description="Compile a plan to canonical JSON and print its fingerprint.",
    )
    compile_.add_argument("plan", type=Path, help="a plan (YAML)")
    compile_.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where to write; the plan's name with .json if left out",
    )
    _add_levels(compile_)
    compile_.set_defaults(action=_compile)
    fingerprint = actions.add_parser(
        "fingerprint",
        help="print the fingerprint that an app pins",
        description="Print what names the plan on the wire, for Client(..., expect=...).",
    )
    fingerprint.add_argument("plan", type=Path, help="a plan (YAML), or a compiled one (.json)")
    fingerprint.set_defaults(action=_fingerprint)
    generate = actions.add_parser(
        "generate",
        help="write a Python module with a typed attribute for each metric",
        description="Write a Python module for apps: the compiled plan, and its metrics, typed.",
    )
    generate.add_argument("plan", type=Path, help="a plan (YAML), or a compiled one (.json)")
    generate.add_argument(
        "-o", "--output", metavar="FILE", help="where to write; standard output if left out"
    )
    generate.set_defaults(action=_generate)


def _add_levels(parser: argparse.ArgumentParser) -> None:
    levels = parser.add_argument_group("what is warned of, on standard error")
    add = levels.add_argument
    add("--warn-value", type=float, default=4.0, metavar="E", help="epsilon a value; default 4")
    add("--warn-day", type=float, default=8.0, metavar="E", help="of a period's day; default 8")
    add("--warn-years", type=float, default=2.0, metavar="Y", help="of the lifetime; default 2")
    add("--strict", action="store_true", help="exit with status 1 if there is a warning")


def run(args: argparse.Namespace) -> int:
    """Run ``sotto plan`` and return its exit status."""
    status: int = args.action(args)
    return status


def _check(args: argparse.Namespace) -> int:
    plan, chosen = _loaded(args.plan)
    for line in _report(plan, chosen):
        print(line)
    return _warned(plan, args)


def _warned(plan: CompiledPlan, args: argparse.Namespace) -> int:
    """Say what of a plan is much; return the exit status."""
    from sotto.cli import linking
    from sotto.design.spending import Levels, warnings
    from sotto.log.writer import now_ms

    found = warnings(plan, Levels(args.warn_value, args.warn_day, args.warn_years), now_ms())
    found += linking.warnings(plan.metrics)
    sys.stdout.flush()
    for line in found:
        print(f"sotto: warning: {line}", file=sys.stderr)
    return int(bool(found) and args.strict)


def _compile(args: argparse.Namespace) -> int:
    from sotto.errors import ParameterError
    from sotto.plan.compile import load_plan

    compiled = load_plan(args.plan).compile()
    data = compiled.to_json()
    if args.output == "-":
        sys.stdout.buffer.write(data)
        print(compiled.fingerprint_hex, file=sys.stderr)
        return _warned(compiled, args)
    output = Path(args.output) if args.output else args.plan.with_suffix(".json")
    if output.resolve() == args.plan.resolve():
        raise ParameterError(f"{output} is the plan itself: name another file with -o")
    _write_whole(output, data)
    print(compiled.fingerprint_hex)
    return _warned(compiled, args)


def _fingerprint(args: argparse.Namespace) -> int:
    plan, _ = _loaded(args.plan)
    print(plan.fingerprint_hex)
    return 0


def _generate(args: argparse.Namespace) -> int:
    from sotto.cli.generating import module_text
    from sotto.errors import ParameterError

    plan, _ = _loaded(args.plan)
    text = module_text(plan)
    if args.output in (None, "-"):
        sys.stdout.buffer.write(text.encode("utf-8"))
        return 0
    output = Path(args.output)
    if output.resolve() == args.plan.resolve():
        raise ParameterError(f"{output} is the plan itself: name another file with -o")
    _write_whole(output, text.encode("utf-8"))
    print(plan.fingerprint_hex)
    return 0


def _loaded(path: Path) -> tuple[CompiledPlan, dict[str, str]]:
    """Return a plan, compiled or not, and why its mechanisms were chosen."""
    from sotto.plan.compiled import CompiledPlan

    if path.suffix == ".json":
        return CompiledPlan.from_json(path.read_bytes()), {}
    from sotto.plan.compile import load_plan

    loaded = load_plan(path)
    return loaded.compile(), dict(loaded.chosen)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _report(plan: CompiledPlan, chosen: Mapping[str, str]) -> list[str]:
    from sotto.cli.wording import least_reports, told
    from sotto.log.writer import now_ms

    lines = [
        f"plan {plan.plan}, version {plan.version}, of collector {plan.collector}",
        f"fingerprint {plan.fingerprint_hex}",
        f"owner {plan.owner}",
        "",
        *table(["metric", "type", "mechanism", "payload", "window"], map(_about, plan.metrics)),
        "",
        *table(
            ["metric", "rung", "sent after", "nominal", "certified", "a lie counts"],
            (row for metric in plan.metrics for row in _rungs(metric)),
        ),
        "",
        *table(["metric", "a report", "reports a period", "a period"], _costs(plan)),
        "",
        *_ceilings(plan),
        _authentication(plan),
        "",
        *least_reports(plan),
        "",
        "Amounts are epsilon; 'certified' is the exact worst-case loss and what is charged. 'A lie",
        "counts': a share s of forged reports moves a share, or a mean in parts of its range, by",
        "up to s times this (a mean of numbers that can be missing: divided by the share present).",
        "Where it is blank no such bound is known, nor is one for quantiles, points of a",
        "distribution and single bits, which fewer reports are about.",
        "",
        "What the reports tell:",
        *(f"  {metric.name}: {told(metric)}" for metric in plan.metrics),
    ]
    if chosen:
        lines += ["", "Mechanisms that the plan left open:"]
        lines += [f"  {name}: {why}" for name, why in chosen.items()]
    if plan.expired(now_ms()):
        lines += ["", "This plan has expired: devices record nothing under it any more."]
    return lines


def _about(metric: CompiledMetric) -> list[str]:
    from sotto.plan.durations import duration_text

    name = metric.mechanism.name
    told = _PARAMETERS | ({"subset_size": "{} favoured"} if name == "brr" else {})
    parameters = [
        told.get(key, "{} " + key).format(
            " ".join(map(str, value)) if isinstance(value, tuple) else value
        )
        for key, value in metric.parameters
        if type(value) in (int, tuple)
    ]
    mechanism = f"{name} ({', '.join(parameters)})"
    return [
        metric.name,
        metric.type,
        mechanism.replace(" ()", ""),
        f"{metric.mechanism.payload_width} B",
        duration_text(metric.window),
    ]


def _rungs(metric: CompiledMetric) -> list[list[str]]:
    from sotto.cli.wording import influence
    from sotto.plan.checks import amount
    from sotto.plan.durations import duration_text

    return [
        [
            metric.name if level == 0 else "",
            str(level + 1),
            duration_text(rung.after) if level < metric.sent else "never",
            amount(rung.epsilon),
            amount(metric.mechanism.certified(level)),
            "" if (lie := influence(metric, level)) is None else f"{lie:.2f}x",
        ]
        for level, rung in enumerate(metric.ladder)
    ]


def _costs(plan: CompiledPlan) -> list[list[str]]:
    from sotto.plan.checks import amount

    rows = [
        [metric.name, amount(metric.cost // metric.limit), str(metric.limit), amount(metric.cost)]
        for metric in plan.metrics
    ]
    return [*rows, ["all", "", str(sum(m.limit for m in plan.metrics)), amount(plan.cost)]]


def _authentication(plan: CompiledPlan) -> str:
    if plan.signed:
        return "messages are signed: nobody else can add a report to a device's pseudonym"
    return "messages are not signed: who can append and has seen pseudonyms can have them revoked"


def _ceilings(plan: CompiledPlan) -> list[str]:
    from sotto.design.spending import in_words, lifetime_of
    from sotto.plan.checks import amount
    from sotto.plan.durations import duration_text

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
    told = [
        part
        for line in in_words(plan)
        for part in wrap(line, 92, initial_indent="  ", subsequent_indent="    ")
    ]
    return [*lines, f"{lifetime}, {reached}", *told]
