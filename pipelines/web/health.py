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
    return {"jobs": jobs, "runs": list(_runs(view))}


def _runs(view: PageView) -> list[tuple[str, str]]:
    """Return what is known of the last run, as terms and what they are."""
    last = view.snapshot.last_run
    if last is None:
        return []
    found = []
    if last.looked:
        found.append(("log last read to its end", formats.clock(last.looked)))
    if last.finished is not None:
        found.append(("last commit", formats.clock(last.finished)))
    if last.seconds is not None:
        found.append(("that run took", f"{last.seconds:,.1f} s"))
    return found


def watched(view: PageView) -> Mapping[str, object] | None:
    """Return what is seen of the job from outside: problems, unread records, partitions, disks."""
    job = view.snapshot.job
    if job is None:
        return None
    terms = []
    if job.last is not None and job.last.looked:
        terms.append(("the job last looked", f"{formats.age(job.at - job.last.looked)} ago"))
    if job.begun is not None:
        terms.append(("a run is in progress, or interrupted, since", formats.clock(job.begun)))
    elif job.state is not None and job.state.value is not None:
        terms.append(("run in progress", "none"))
    lag = None if job.lag is None else job.lag.value
    if lag is not None:
        terms.append(("records not counted yet", f"{lag.records:,}"))
        if lag.oldest is not None:
            terms.append(("age of the oldest of them", formats.age(job.at - lag.oldest)))
    elif job.lag is not None:
        terms.append(("records not counted yet", f"not known: {job.lag.problem}"))
    for disk in job.disks:
        left = f"{formats.size(disk.free)} of {formats.size(disk.total)}"
        terms.append((f"free on the disk of the {disk.places}", left))
    return {
        "job": job,
        "terms": terms,
        "rows": [] if job.arrivals is None else job.arrivals.value or [],
        "minutes": PAUSE // 60_000,
        "records": RECORDS,
    }
