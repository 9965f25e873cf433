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
  sotto plan sampler plan.yaml -o sampler.json
      write the integers that devices compare random words with, for clients in other languages
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sotto.errors import ParameterError, PlanError
from sotto.exit_status import ExitStatus
from sotto.plan.compiled import CompiledPlan
from sotto.plan.files import checked_output, plan_of, write_output
from sotto_cli import options

#: The functions of the actions.
_ACTIONS = {
    "check": "print what a plan collects and what it costs",
    "compile": "write the JSON that devices and aggregators read",
    "fingerprint": "print the fingerprint that an app pins",
    "generate": "write a Python module with a typed attribute for each metric",
    "disclose": "write what people, lawyers and stores are to be told",
    "sampler": "write the integers of its samplers, for clients in other languages",
}
#: The documents that ``disclose`` writes.
_FORMATS = {
    "consent": "what a dialogue asks",
    "policy": "a paragraph for a privacy policy",
    "dpia": "tables for an impact assessment (Markdown)",
    "apple": "PrivacyInfo.xcprivacy",
    "google": "answers for the Data safety form (CSV)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    of = {}
    for name, help in _ACTIONS.items():
        action = globals()[f"_{name}"]
        of[name] = actions.add_parser(name, help=help, description=action.__doc__)
        of[name].set_defaults(action=action)
        of[name].add_argument("plan", type=Path, help="a plan (YAML), or a compiled one (.json)")
    compiled = "the plan's name with .json or .dev.json"
    for name in ("compile", "generate", "disclose", "sampler"):
        place = compiled if name == "compile" else "standard output"
        written = f"where to write; {place} if left out, standard output for -"
        of[name].add_argument("-o", "--output", metavar="FILE", help=written)
    imported = "what the module imports: the package that apps ship (the default), or its source"
    names = ("sottovoce", "clientsdk")
    of["generate"].add_argument("--sdk", choices=names, default=names[0], help=imported)
    fast = "for trials: a budget period lasts a minute, and no real collector takes reports"
    options.add(of["compile"], "--development", fast)
    whole = "the SHA-256 of the whole document instead, which also pins texts and dates"
    options.add(of["fingerprint"], "--document", whole)
    what = "; ".join(f"{name}: {text}" for name, text in _FORMATS.items())
    options.add(of["disclose"], "--format NAME", what, "consent", choices=_FORMATS)
    for name in ("check", "compile"):
        group = of[name].add_argument_group("what is warned of, on standard error")
        options.add(group, "--warn-value E", "epsilon a value", 4.0)
        options.add(group, "--warn-day E", "epsilon of a period, for each of its days", 8.0)
        lasts = "years that the lifetime's ceiling lasts"
        options.add(group, "--warn-years Y", lasts, 2.0, type=options.above_zero)
        options.add(group, "--strict", "exit with status 1 if there is a warning")


def run(args: argparse.Namespace) -> int | None:
    status: int | None = args.action(args)
    return status


def _check(args: argparse.Namespace) -> int:
    """Refuse a plan that cannot be honoured; otherwise print what it means."""
    from sotto.design.description import description

    plan = plan_of(args.plan)
    print("\n".join(description(plan.compiled, plan.chosen)), flush=True)
    return _warned(plan.compiled, args)


def _compile(args: argparse.Namespace) -> int:
    """Compile a plan to canonical JSON and print its fingerprint."""
    from sotto.plan.development import development_plan

    plan = plan_of(args.plan).compiled
    _refuse_ended(plan)
    compiled = development_plan(plan) if args.development else plan
    output = args.output or args.plan.with_suffix(".dev.json" if args.development else ".json")
    _warn_of_same_version(output, compiled)
    _write_beside(args.plan, output, compiled.to_json())
    print(compiled.fingerprint_hex, file=sys.stderr if output == "-" else sys.stdout)
    return _warned(plan, args)


def _warn_of_same_version(output: str | Path, plan: CompiledPlan) -> None:
    """Warn where a file that is written again has another plan under the same version."""
    with suppress(OSError, PlanError):
        before = CompiledPlan.from_json(checked_output(Path(output)).read_bytes())
        known, made = ((p.collector, p.plan, p.version) for p in (before, plan))
        if known == made and before.fingerprint_hex != plan.fingerprint_hex:
            options.warn(
                f"{output} had another plan under version {plan.version}: raise 'version' if "
                "anybody has that one, since a version has one fingerprint"
            )


def _refuse_ended(plan: CompiledPlan) -> None:
    from sotto.clocks import now_ms

    if plan.expired(now := now_ms()):
        raise PlanError(plan.ending(now))


def _warned(plan: CompiledPlan, args: argparse.Namespace) -> int:
    """Refuse a plan that has ended, and warn of what one asks much of; return the exit status."""
    from sotto.clocks import now_ms
    from sotto.design.description import warnings
    from sotto.design.spending import Levels
    from sotto_cli.simulation import linking

    _refuse_ended(plan)
    found = warnings(plan, Levels(args.warn_value, args.warn_day, args.warn_years), now_ms())
    found += linking.warnings(plan.metrics)
    sys.stdout.flush()
    for line in found:
        options.warn(line)
    return ExitStatus.found(found and args.strict)


def _fingerprint(args: argparse.Namespace) -> None:
    """Print what names the plan on the wire, for Client(..., expect=...)."""
    plan = plan_of(args.plan).compiled
    print(plan.digest.hex() if args.document else plan.fingerprint_hex)


def _generate(args: argparse.Namespace) -> None:
    """Write a Python module for apps: the compiled plan, and its metrics, typed."""
    from sotto.plan.generate import module_text

    if str(args.output).endswith(".json"):
        raise PlanError(f"{args.output} must be a Python module's file, such as metrics.py")
    _write_part(args, lambda plan: module_text(plan, args.sdk).encode("utf-8"))


def _sampler(args: argparse.Namespace) -> None:
    """Write the integers that follow from a plan, for clients that do not compute them."""
    from sotto.plan.sampler import sampler_json

    _write_part(args, sampler_json)


def _write_beside(plan: Path, output: str | Path, data: bytes) -> None:
    """Write what is made of a plan's file; ``-`` is standard output.

    Raises ParameterError for a name that plans have, and as :func:`checked_output`.
    """
    if output == "-":
        sys.stdout.buffer.write(data)
        return
    written = checked_output(Path(output))
    if written == plan.resolve() or written.suffix in (".yaml", ".yml"):
        raise ParameterError(f"{output} has a plan's text, or its name: name another file with -o")
    write_output(Path(output), data)


def _write_part(args: argparse.Namespace, made: Callable[[CompiledPlan], bytes]) -> None:
    """Write what is made of a plan, and print the fingerprint if that goes to a file."""
    plan = plan_of(args.plan).compiled
    _write_beside(args.plan, args.output or "-", made(plan))
    if args.output not in (None, "-"):
        print(plan.fingerprint_hex)


def _disclose(args: argparse.Namespace) -> None:
    """Write what a plan collects, in the words of those who must be told. It is a draft: whoever
    answers for the app reads it first. Figures follow from the plan's certified epsilons; what the
    plan does not say, such as a legal basis, is left to be filled in."""
    from sotto.disclosure.forms import disclosure, gaps

    plan = plan_of(args.plan).compiled
    _write_beside(args.plan, args.output or "-", disclosure(plan, args.format))
    for line in gaps(plan, args.format):
        options.warn(line)
