"""Plan a collection: how many users it takes, what a ladder is worth, what it costs.

Asked of a metric of a plan, or of a type of value and a ladder alone. How precise an estimate will
be is computed from the probabilities that the sampler realises, for the worst data unless some are
stated; intervals are those of the estimates, which cover the truth of the reports that count.

examples:
  sotto design --type category --domain 50 --ladder 0.5,1,2 --width 0.01
      how many users an interval of one percentage point takes at each level
  sotto design --type number --range 0 5000 --epsilon 1 --users 20000 --plot mean.svg
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
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.errors import ParameterError
from sotto_cli import options

if TYPE_CHECKING:
    from mechanisms.planner.targets import Assumed
    from sotto.design.experiment import Effect
    from sotto.design.metric import Goal, Terms
    from sotto.design.questions import Question
    from sotto.design.spending import Budget


#: The equations of so many candidates fit into memory.
MAX_CANDIDATES = 10_000
_WEEK = 7 * 86_400_000
#: Options that only a question without a plan has.
_SINGLE = (
    *("epsilon", "ladder", "mechanism", "domain", "range", "dimensions", "bits", "hashes"),
    *("cohorts", "missing", "period_ceiling", "lifetime"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", type=Path, help="a plan (YAML), or a compiled one")
    add = partial(options.add, parser)
    add("--metric NAME", "of the plan, only this one")
    goal = parser.add_argument_group("what is wanted")
    options.add(goal, "--users N", "users in a window", type=options.whole(1))
    measure = goal.add_mutually_exclusive_group()
    options.add(measure, "--width W", "width of the interval", type=options.above_zero)
    options.add(measure, "--error E", "standard error", type=options.above_zero)
    options.add(measure, "--floor F", "least share noticed", type=options.above_zero)
    options.add(goal, "--confidence P", "of the interval", 0.95, type=float)
    panels = "trade users and years: what if a device answers in one period of N"
    options.add(goal, "--panels N,...", panels, type=_panels)
    trial = parser.add_argument_group("an experiment that compares arms")
    compared = "shares, or means, in the first arm and in another"
    options.add(trial, "--experiment A:B", compared, type=_compared)
    options.add(trial, "--power P", "probability of noticing", 0.8, type=float)
    options.add(trial, "--arms N", "default: those of the plan, or 2", type=options.whole(2))
    data = parser.add_argument_group("what is assumed of the data; the worst if left out")
    options.add(data, "--share S", "true share, of one", type=float)
    options.add(data, "--uniform", "numbers all over their range")
    options.add(data, "--candidates N|FILE", "candidate strings: how many, or one a line")
    add = partial(options.add, parser.add_argument_group("a question without a plan"))
    add("--type TYPE", "category, number, string, survey, ...")
    add("--epsilon E", "the only or last level", type=options.above_zero)
    add("--ladder E,...", "all, weakest first", [], type=options.numbers)
    add("--mechanism NAME", "default: the chooser's")
    add("--domain M", "symbols, points or items", type=options.whole(1))
    add("--dimensions D", "of a vector", type=options.whole(1))
    add("--bits N", "of a string's filter; default 128", type=options.whole(1))
    add("--hashes N", "default 2", type=options.whole(1))
    add("--cohorts N", "default 16", type=options.whole(1))
    ends = ("LOW", "HIGH")
    add("--range LOW", "of a number; default 0 1", type=float, nargs=2, metavar=ends)
    add("--missing", "a value can be missing")
    add("--values N", "a period", 1, type=options.whole(1))
    add("--period DURATION", "budget period, for --panels; default 7d")
    add("--period-ceiling E", "epsilon a period", type=options.above_zero)
    add("--lifetime E", "epsilon ever spent", type=options.above_zero)
    options.add(parser, "--plot FILE.svg", "write a chart", type=Path)
    options.add_format(parser, "table", "json")


def _panels(text: str) -> tuple[int, ...]:
    from sotto.plan.checks import MAX_PANEL

    parts = text.split(",")
    if not all(part.isdecimal() and 1 <= int(part) <= MAX_PANEL for part in parts):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be whole numbers in [1, {MAX_PANEL}] with commas between them"
        )
    return tuple(dict.fromkeys(map(int, parts)))


def _compared(text: str) -> tuple[float, float]:
    try:
        first, arm = (
            float(part.removesuffix("%")) / (100 if part.endswith("%") else 1)
            for part in text.split(":")
        )
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be two numbers, such as 10%:11% or 410:400"
        ) from None
    return first, arm


def run(args: argparse.Namespace) -> int:
    from sotto.design.experiment import arm_users
    from sotto.design.metric import design, in_panels
    from sotto.design.segments import in_segments
    from sotto_cli.design import report

    if (args.plan is None) == (args.type is None):
        raise ParameterError("give a plan, or a question by --type and --ladder or --epsilon")
    plan = None if args.plan is None else options.load(args.plan)
    questions, budget = _of_options(args) if plan is None else _of_plan(args, plan)
    goal, refused = _goal(args), {}
    panels, terms, effect = args.panels or (), _terms(args, budget), _effect(args)
    answers = []
    for question in questions:
        try:
            answer = design(question, goal, args.users)
            traded = in_panels(answer, panels, terms) if panels else ()
            arms = arm_users(question, effect) if effect else ()
            cut = () if plan is None else in_segments(plan.plan, question, answer.users)
            answers.append(replace(answer, panels=traded, segments=cut, effect=effect, arms=arms))
        except ParameterError as error:
            if len(questions) == 1:
                raise
            refused[question.name] = str(error)
    if args.plot is not None:
        if len(questions) > 1:
            raise ParameterError("--plot is of one metric: name it with --metric")
        report.plot(answers[0], args.plot)
    printed = report.json_lines if args.format == "json" else report.lines
    print("\n".join(printed(answers, refused, budget)))
    return 0


def _terms(args: argparse.Namespace, budget: Budget) -> Terms:
    """Return what panels are traded against: of a plan its own period, else ``--period``."""
    from sotto.design.metric import Terms

    if args.period is not None and args.plan is not None:
        raise ParameterError("a plan has its own period: leave --period out")
    period = budget.period_length or (_WEEK if args.period is None else args.period)
    if period < 1:
        raise ParameterError("--period must be above 0")
    ceiling = None if budget.lifetime is None else budget.lifetime - budget.permanent
    return Terms(period, budget.recurring, ceiling)


def _goal(args: argparse.Namespace) -> Goal:
    from sotto.design.metric import Goal

    if not 0 < args.confidence < 1:
        raise ParameterError(f"--confidence must lie in (0, 1), not {args.confidence:g}")
    for measure in ("width", "error", "floor"):
        target = getattr(args, measure)
        if target is not None:
            return Goal(measure, target, args.confidence)
    return Goal("width", None, args.confidence)


def _effect(args: argparse.Namespace) -> Effect | None:
    from sotto.design.experiment import Effect

    if args.experiment is None:
        return None
    first, arm = args.experiment
    return Effect(first, arm, args.power, 1 - args.confidence, args.arms or 2)


def _of_plan(args: argparse.Namespace, loaded: options.LoadedPlan) -> tuple[list[Question], Budget]:
    from sotto.design.questions import question_of_metric
    from sotto.design.spending import Budget, lifetime_of

    if any(getattr(args, option) for option in _SINGLE) or args.values != 1:
        raise ParameterError("a plan has its own types, ladders and ceilings: leave options out")
    plan, candidates, _ = loaded
    metrics = plan.metrics if args.metric is None else (plan.metric(args.metric),)
    if args.arms is None and plan.experiment is not None:
        args.arms = len(plan.experiment.arms)
    questions = []
    for metric in metrics:
        own = candidates.get(metric.name, ())
        assumed = _assumed(args, metric.type, own)
        questions.append(question_of_metric(plan, metric, assumed))
    return questions, Budget(
        plan.cost,
        plan.ceilings.period,
        plan.ceilings.lifetime,
        plan.permanent,
        lifetime_of(plan).periods,
        plan.period,
        plan.recurring,
    )


def _of_options(args: argparse.Namespace) -> tuple[list[Question], Budget]:
    from mechanisms.exact import MICRO
    from sotto.design.questions import affordable, question_of
    from sotto.design.spending import Budget

    names = {"domain": "domain_size", "dimensions": "dimensions", "bits": "bits"}
    names |= {"hashes": "hashes", "cohorts": "cohorts"}
    given = {to: getattr(args, name) for name, to in names.items() if getattr(args, name)}
    low, high = _range(args.range)
    question = question_of(
        args.type,
        _ladder(args),
        {**given, "missing": args.missing},
        mechanism=args.mechanism,
        assumed=_assumed(args, args.type, ()),
        scale=high - low if args.type in ("number", "ordinal", "vector") else 1.0,
        low=low if args.type in ("number", "ordinal", "vector") else 0.0,
        limit=args.values,
    )
    ceiling, lifetime = (
        None if value is None else round(value * MICRO)
        for value in (args.period_ceiling, args.lifetime)
    )
    periods = affordable(question, ceiling, lifetime)
    recurring = 0 if question.constant else question.cost
    return [question], Budget(question.cost, ceiling, lifetime, 0, periods, None, recurring)


def _ladder(args: argparse.Namespace) -> list[int]:
    from mechanisms.exact import to_micro

    amounts = list(args.ladder)
    if args.epsilon is not None and (not amounts or amounts[-1] < args.epsilon):
        amounts.append(args.epsilon)
    elif args.epsilon is not None and amounts[-1] > args.epsilon:
        raise ParameterError(f"--epsilon {args.epsilon:g} is below the last level, {amounts[-1]:g}")
    if not amounts:
        raise ParameterError("give the epsilons: --ladder 0.5,1,2 or --epsilon 1")
    return [to_micro(amount) for amount in amounts]


def _range(ends: list[float] | None) -> tuple[float, float]:
    low, high = ends or (0.0, 1.0)
    if not -math.inf < low < high < math.inf:
        raise ParameterError(f"--range must be LOW HIGH with LOW below HIGH, not {low:g} {high:g}")
    return low, high


def _assumed(args: argparse.Namespace, kind: str, own: tuple[str, ...]) -> Assumed:
    from mechanisms.planner.targets import Assumed

    candidates = _candidates(args.candidates, own) if kind == "string" else ()
    values = None
    if args.uniform and kind in ("number", "ordinal", "vector"):
        values = tuple((place + 0.5) / 1000 for place in range(1000))
    return Assumed(args.share, values, candidates)


def _candidates(given: str | None, own: tuple[str, ...]) -> tuple[str, ...]:
    """Return candidates: those of a file, or made up ones, or a plan's own."""
    if given is None:
        return own
    if given.isdigit():
        if not 1 <= int(given) <= MAX_CANDIDATES:
            raise ParameterError(f"--candidates must lie in [1, {MAX_CANDIDATES}], not {given}")
        return tuple(f"candidate {number}" for number in range(int(given)))
    read = [line.strip() for line in Path(given).read_text(encoding="utf-8-sig").splitlines()]
    found = tuple(dict.fromkeys(line for line in read if line and not line.startswith("#")))
    if len(found) > MAX_CANDIDATES:
        raise ParameterError(f"{given} has {len(found)} candidates, at most {MAX_CANDIDATES} fit")
    return found
