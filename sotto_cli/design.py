"""Plan a collection: how many users it takes, what a ladder is worth, what it costs.

Asked of a metric of a plan, or of a type of value and a ladder alone. How precise an estimate will
be is computed from the probabilities that the sampler realises, for the worst data unless some are
stated; intervals are those of the estimates, which cover the truth of the reports that count.

examples:
  sotto design --type category --domain 50 --ladder 0.5,1,2 --width 0.01
      how many users an interval of one percentage point takes at each level
  sotto design --type number --range 0 5000 --ladder 1 --users 20000 --plot mean.svg
      how precise the mean of 20,000 users is, and a chart of it
  sotto design plan.yaml --users 100000
      every metric of a plan, and for how long the budget lasts
  sotto design plan.yaml --metric theme --floor 0.01 --format json
      users to notice a share of 1 %, for a program to read
  sotto design plan.yaml --users 100000 --panels 1,4,13,26
      what it is worth if a device answers in every period, in one of 4, of 13 or of 26
  sotto design plan.yaml --metric dark --experiment 10%:11%
      users an arm to tell 11 % from 10 %, looking once, or every day

Widths, errors and floors are in the unit of the value; shares are parts of one.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from sotto.errors import ParameterError
from sotto.plan.checks import MAX_PANEL
from sotto.plan.files import plan_of
from sotto_cli import options

#: The equations of so many candidates fit into memory.
_CANDIDATES = 10_000
#: Options that only a question without a plan has.
_GIVEN = ("domain_size", "dimensions", "bits", "hashes", "cohorts", "missing")
_SINGLE = ("ladder", "mechanism", "range", *_GIVEN)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", type=Path, help="a plan (YAML), or a compiled one")
    add = partial(options.add, parser)
    add("--metric")
    goal = parser.add_argument_group("what is wanted")
    options.add(goal, "--users N", "users in a window")
    measure = goal.add_mutually_exclusive_group()
    options.add(measure, "--width W", "width of the interval", type=options.above_zero)
    options.add(measure, "--error E", "standard error", type=options.above_zero)
    options.add(measure, "--floor F", "least share noticed", type=options.above_zero)
    options.add(goal, "--confidence P", "of the interval", 0.95)
    panels = "trade users and years: what if a device answers in one period of N"
    options.add(goal, "--panels N,...", panels, type=options.several(MAX_PANEL))
    trial = parser.add_argument_group("an experiment that compares arms")
    compared = "shares, or means, in the first arm and in another"
    options.add(trial, "--experiment A:B", compared, type=options.compared)
    options.add(trial, "--power P", "probability of noticing", 0.8)
    options.add(trial, "--arms N", "default: those of the plan, or 2", type=options.whole(2))
    data = parser.add_argument_group("what is assumed of the data; the worst if left out")
    options.add(data, "--share S", "true share, of one", type=float)
    options.add(data, "--uniform", "all over the range, or equally frequent")
    candidates = "candidate strings, instead of the plan's"
    options.add(data, "--candidates N", candidates, type=options.whole(1, _CANDIDATES))
    add = partial(options.add, parser.add_argument_group("a question without a plan"))
    add("--type TYPE", "category, number, string, survey, ...")
    add("--ladder E,...", "the epsilon of each level, weakest first", type=options.numbers)
    add("--mechanism NAME", "default: the chooser's")
    add("--domain M", "symbols, points or items", type=options.whole(1), dest="domain_size")
    add("--dimensions D", "of a vector", type=options.whole(1))
    add("--bits N", "of a string's filter; default 128")
    add("--hashes N", "default 2")
    add("--cohorts N", "default 16")
    add("--range LOW", "of a number; default 0 1", type=float, nargs=2, metavar=("LOW", "HIGH"))
    add("--missing", "a value can be missing")
    options.add(parser, "--plot FILE.svg", "write a chart", type=Path)
    options.add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> None:
    from sotto.design import report
    from sotto.design.answers import DataAssumption, answers, asked_alone, asked_of_plan
    from sotto.design.experiment import Effect
    from sotto.design.metric import Goal

    if (args.plan is None) == (args.type is None):
        raise ParameterError("give a plan, or a question by --type and --ladder")
    supposed, arms = DataAssumption(args.share, args.uniform, args.candidates), args.arms
    if args.plan is None:
        if args.ladder is None:
            raise ParameterError("give the epsilons: --ladder 0.5,1,2")
        asked = asked_alone(
            args.type,
            args.ladder,
            {name: value for name in _GIVEN if (value := getattr(args, name))},
            supposed,
            mechanism=args.mechanism,
            ends=args.range or (0.0, 1.0),
        )
    else:
        if any(getattr(args, option) for option in _SINGLE):
            raise ParameterError("a plan has its own types and ladders")
        read = plan_of(args.plan)
        plan = read.compiled
        asked = asked_of_plan(plan, read.candidates, supposed, args.metric)
        arms = arms or (plan.experiment and len(plan.experiment.arms))
    if args.plot is not None and len(asked.questions) > 1:
        raise ParameterError("--plot is of one metric: name it with --metric")
    measure, target = next(
        ((name, found) for name in ("width", "error", "floor") if (found := getattr(args, name))),
        ("width", None),
    )
    effect = None
    if args.experiment:
        first, other = args.experiment
        effect = Effect(first, other, args.power, 1 - args.confidence, arms or 2, asked.looks)
    goal = Goal(measure, target, args.confidence)
    found = answers(asked, goal, args.users, panels=args.panels or (), effect=effect)
    if args.plot is not None:
        report.plot(found.designs[0], args.plot)
    print("\n".join(report.json_lines(found) if args.format == "json" else report.lines(found)))
