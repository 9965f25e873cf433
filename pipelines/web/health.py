"""The sections of the page about the data's health: what was rejected, audited and read."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.exporter.arrivals import PAUSE, RECORDS
from pipelines.results.fields import fields_of
from pipelines.results.records import JobNumbers
from pipelines.web import formats
from pipelines.web.views import PageView
from sotto.wire.reasons import Reason

#: Budget periods that are listed, the newest ones.
_PERIODS = 60


def rejections(view: PageView) -> Mapping[str, object]:
    """Return the rejected reports by reason, most first."""
    found = sorted(view.snapshot.rejections, key=lambda each: (-each.reports, each.reason))
    return {
        "rows": found,
        "total": sum(each.reports for each in found),
        "most": max((each.reports for each in found), default=1),
        "several": len({each.collector for each in found}) > 1,
        "meaning_of": Reason.meaning_of,
    }


def budgets(view: PageView) -> Mapping[str, object]:
    """Return the audit of the newest budget periods, newest first."""
    found = sorted(view.snapshot.budgets, key=lambda each: each.period_start, reverse=True)
    ceilings = {plan.collector: plan.ceilings.period / 1e6 for plan in view.snapshot.plans}
    several = len({each.collector for each in found}) > 1
    shown = found[:_PERIODS]
    return {"rows": shown, "total": len(found), "ceilings": ceilings, "several": several}


def job(view: PageView) -> Mapping[str, object]:
    """Return how far the job is, and what it says of itself."""
    jobs = []
    for each in view.snapshot.health:
        numbers = [
            (formats.size(value) if of.name == "state_bytes" else f"{value:,}", of.about.text)
            for of in fields_of(JobNumbers)
            if (value := each.numbers.get(of.name)) is not None
        ]
        jobs.append((each, numbers))
    return {"jobs": jobs, "last": view.snapshot.last_run}


def watched(view: PageView) -> Mapping[str, object] | None:
    """Return what is seen of the job from outside: problems, unread records, partitions, disks."""
    job = view.snapshot.job
    return None if job is None else {"job": job, "minutes": PAUSE // 60_000, "records": RECORDS}
