"""Audit mechanisms, or a plan: what is claimed, what is certified, and what an attack shows.

Claimed is the nominal amount, certified the exact worst case, computed again from the thresholds
that the sampler compares its random words with. Device and batch are lower bounds: two inputs are
distinguished by whole chains, by somebody who knows the mechanism and the public coins and sees
every level. Device attacks what devices send: recordings through the SDK's own client. Batch
attacks the code that draws for many values at once, which no device runs. A fair secret bit decides
which input a chain hides; the best distinguishing event is found on a fifth of the chains, and its
right guesses among the others are bounded by the limit of Clopper and Pearson. Device's law follows
the outcomes of a device's sampler for up to 12 inputs, all of them or the share that is printed
where draws repeat until they fit, and compares their law with the certified one.

Without a plan all mechanisms of the library are audited, and the claims of papers that are false.
The status is 1 if a mechanism does not keep its word, and 0 otherwise.

examples:
  sotto audit
      every mechanism of the library, and the claims of papers, in some two minutes
  sotto audit --mechanism grr,oue --epsilon 0.5,1,2
      two of them, as chains up to each of these amounts
  sotto audit plan.yaml
      what each metric really costs: a report at each level, a period, a lifetime
  sotto audit plan.yaml --attack --format json
      the same, every metric attacked, for a program to read

An attacked amount above the certified one is no proof by itself: of bounds with a confidence of
95 %, one in twenty may be too large by chance. The verdict is not that of a single bound: that any
of them is wrong has a chance of one in a million.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from sotto.errors import ParameterError
from sotto.exit_status import ExitStatus
from sotto.plan.files import plan_of
from sotto_cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    parser.add_argument("plan", nargs="?", type=Path, help="a plan (YAML), or a compiled one")
    parser.add_argument(
        "--attack",
        action=argparse.BooleanOptionalAction,
        help="attack, or do not; left out, the library is attacked and a plan is not",
    )
    trials = "chains that the batch code draws of each of the two inputs with the largest loss"
    add("--trials N", trials, 200_000, type=options.whole(1000, 50_000_000))
    recordings = "recordings that devices make of each of the two, fewer where they take long"
    add("--recordings N", recordings, 10_000, type=options.whole(1000, 10_000_000))
    add("--confidence P", "of each attacked amount", 0.95)
    amounts = (
        "the amounts up to which the library's chains go; default 1, and for grr, sue and oue 0.5 "
        "and 2 too"
    )
    add("--epsilon E,...", amounts, type=options.numbers)
    add("--mechanism NAME,...", "of the library, only these and no papers' claims")
    options.add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> int:
    from mechanisms.audit.claims import Auditor
    from mechanisms.randomness import SystemSource
    from sotto.audit import audit_library, audit_plan
    from sotto_cli.simulation.sampler import DeviceSampler, device_cases

    auditor = Auditor(SystemSource(), args.trials, args.recordings, args.confidence)
    attacks = args.plan is None if args.attack is None else args.attack
    how, show = auditor if attacks else None, options.status_line()
    if args.plan is None:
        names = args.mechanism.split(",") if args.mechanism else None
        cases = [] if names else device_cases()
        found = audit_library(how, args.epsilon, names, show, DeviceSampler, cases)
    elif args.epsilon or args.mechanism:
        raise ParameterError("--epsilon and --mechanism are for the library, not for a plan")
    else:
        found = audit_plan(plan_of(args.plan).compiled, how, show, DeviceSampler)
    print(json.dumps(found.document, indent=1) if args.format == "json" else "\n".join(found.text))
    return ExitStatus.found(found.failed)
