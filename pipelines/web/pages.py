"""The pages and their sections: what each shows, and in which order.

A section is one function and one template. To add one, write a function that takes the page's view
(:mod:`pipelines.web.views`) and returns the variables of its template, or None if it has nothing to
show; write ``templates/NAME.html.j2``; and add a :class:`Section` to a page below. A
:class:`SitePage` that is added to :data:`PAGES` has an address and a link in the navigation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.web import alerts, course, experiment, health, metric, overview, plan, ranges
from pipelines.web.views import PageView


@dataclass(frozen=True)
class Section:
    """A part of a page.

    ``name``: that of its template, and of its place in the page. ``title``: its heading; empty for
    none. ``build``: returns the template's variables; None leaves the section out.
    ``public``: whether it is shown to the public.
    """

    name: str
    title: str
    build: Callable[[Any], Mapping[str, object] | None]
    public: bool = True


@dataclass(frozen=True)
class SitePage:
    """A page: its name in addresses, its title, its sections from the top.

    ``public``: whether the public has it. ``kept``: whether it changes with the results alone, so
    that it can be kept. ``shown``: returns whether there is anything to show, so that it is linked.
    """

    name: str
    title: str
    sections: tuple[Section, ...]
    public: bool = True
    kept: bool = True
    shown: Callable[[PageView], bool] = lambda view: True

    def is_shown(self, view: PageView) -> bool:
        """Whether the navigation links to it, and a static file has it."""
        return (self.public or not view.public) and self.shown(view)


OVERVIEW = SitePage(
    "overview",
    "Overview",
    (
        Section("glance", "", overview.glance, public=False),
        Section("metrics", "Metrics", overview.metrics),
    ),
)
PLANS = SitePage("plans", "Plans", (Section("plans", "", plan.plans),))
HEALTH = SitePage(
    "health",
    "Data health",
    (
        Section("seen", "Now", health.watched),
        Section("job", "The job", health.job),
        Section("rejections", "Rejected reports", health.rejections),
        Section("budgets", "Budgets and audits", health.budgets),
    ),
    public=False,
    kept=False,
)
ALERTS = SitePage(
    "alerts",
    "Alerts",
    (Section("moved", "", alerts.moved), Section("watched", "What is watched", alerts.watched)),
    public=False,
    kept=False,
    shown=lambda view: view.snapshot.watch is not None,
)
EXPERIMENTS = SitePage(
    "experiments",
    "Experiments",
    (Section("experiment", "", experiment.experiments),),
    shown=lambda view: any(plan.experiment for plan in view.snapshot.plans),
)
#: The pages that the navigation links to, in its order.
PAGES = (OVERVIEW, EXPERIMENTS, ALERTS, PLANS, HEALTH)

#: The page of every metric, with a :class:`~pipelines.web.views.MetricView`.
METRIC = SitePage(
    "metric",
    "Metric",
    (
        Section("course", "Over time", course.course),
        Section("ranges", "The windows of the range together", ranges.ranges),
        Section("window", "One window", metric.window),
        Section("alarms", "Not what honest devices send", metric.alarms, public=False),
        Section("shares", "Estimates", metric.shares),
        Section("retention", "Who came again", metric.retention),
        Section("strings", "Strings", metric.strings),
        Section("distribution", "Distribution", metric.distribution),
        Section("segments", "By segment", metric.segments),
        Section("sharpening", "How the window sharpens", metric.sharpening),
    ),
)
#: The page of every board, with a :class:`~pipelines.web.views.BoardView`.
BOARD = SitePage("board", "Board", (Section("board", "", course.board),))
#: The page of every plan's version, with a :class:`~pipelines.web.views.PlanView`.
PLAN = SitePage(
    "plan",
    "Plan",
    (
        Section("identity", "", plan.identity),
        Section("collected", "What is collected", plan.collected),
        Section("ceilings", "What a device spends at most", plan.ceilings),
        Section("promise", "What people are promised", plan.promise),
    ),
)
