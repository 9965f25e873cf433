"""The answers of ``sotto design``: about every metric of a plan, or one question without a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from mechanisms.exact import to_micro
from mechanisms.planner.targets import Assumed
from sotto.design.experiment import Effect, arm_users
from sotto.design.metric import Design, Goal, design, in_panel
from sotto.design.questions import Question, question_of, question_of_metric
from sotto.design.segments import in_segments
from sotto.design.spending import lifetime_of
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledMetric, CompiledPlan

_RANGED = ("number", "ordinal", "vector")


@dataclass(frozen=True)
class DataAssumption:
    """Suppositions about the data before they are collected."""

    share: float | None = None
    #: Whether numbers lie all over their range, and categories are equally frequent.
    uniform: bool = False
    #: How many candidate strings there are, if a plan does not say which.
    candidates: int | None = None

    def of(self, kind: str, own: tuple[str, ...] = ()) -> Assumed:
        """Return what is assumed of values of a type; ``own`` are a plan's candidates."""
        spread = tuple((place + 0.5) / 1000 for place in range(1000))
        values = spread if self.uniform and kind in _RANGED else None
        if self.candidates is not None:
            own = tuple(f"candidate {number}" for number in range(self.candidates))
        even = self.uniform and kind in ("category", "boolean")
        return Assumed(self.share, values, own if kind == "string" else (), even)


@dataclass(frozen=True)
class DesignRequest:
    """Questions, and what may be spent on the answers."""

    questions: list[Question]
    plan: CompiledPlan | None = None

    @property
    def looks(self) -> int:
        """The looks at an experiment until its planned end."""
        planned = self.plan.decision if self.plan else None
        return planned.looks if planned else Effect.looks


def asked_of_plan(
    plan: CompiledPlan,
    candidates: Mapping[str, tuple[str, ...]],
    supposed: DataAssumption,
    metric: str | None = None,
) -> DesignRequest:
    """Return the questions about the metrics of a plan, or about one of them."""

    def question(each: CompiledMetric) -> Question:
        assumed = supposed.of(each.type, candidates.get(each.name, ()))
        return question_of_metric(plan, each, assumed)

    metrics = plan.metrics if metric is None else (plan.metric(metric),)
    return DesignRequest([question(each) for each in metrics], plan)


def asked_alone(
    kind: str,
    ladder: Sequence[float],
    given: Mapping[str, int],
    supposed: DataAssumption,
    *,
    mechanism: str | None = None,
    ends: Sequence[float] = (0.0, 1.0),
) -> DesignRequest:
    """Return the question about a type of value and a ladder, in epsilons.

    ``ends`` are those of a number's range.
    """
    low, high = ends
    if not -inf < low < high < inf:
        raise ParameterError(f"--range must be LOW HIGH with LOW below HIGH, not {low:g} {high:g}")
    low, scale = (low, high - low) if kind in _RANGED else (0.0, 1.0)
    question = question_of(
        kind,
        [to_micro(amount) for amount in ladder],
        given,
        mechanism=mechanism,
        assumed=supposed.of(kind),
        scale=scale,
        low=low,
    )
    return DesignRequest([question])


@dataclass(frozen=True)
class DesignAnswers:
    """The design of each metric, and why there is none of others; of a plan, if there is one."""

    designs: list[Design]
    refused: dict[str, str]
    plan: CompiledPlan | None


def answers(
    asked: DesignRequest,
    goal: Goal,
    users: int | None = None,
    *,
    panels: tuple[int, ...] = (),
    effect: Effect | None = None,
) -> DesignAnswers:
    """Answer all questions.

    ``panels`` are numbers of panels to be tried. Raises ParameterError if the only question cannot
    be answered, or panels are to be tried without a plan.
    """
    plan = asked.plan
    if panels and plan is None:
        raise ParameterError("--panels goes with a plan, whose budget periods they divide")
    found: list[Design] = []
    refused: dict[str, str] = {}
    for question in asked.questions:
        try:
            answer = design(question, goal, users)
            arms = arm_users(question, effect) if effect else ()
            cut = in_segments(plan, question, answer.users) if plan else ()
            lives = [(panel, lifetime_of(plan, panel)) for panel in panels] if plan else []
            traded = tuple(in_panel(answer, panel, lasts) for panel, lasts in lives)
            found.append(replace(answer, panels=traded, segments=cut, effect=effect, arms=arms))
        except ParameterError as error:
            if len(asked.questions) == 1:
                raise
            refused[question.name] = str(error)
    return DesignAnswers(found, refused, plan)
