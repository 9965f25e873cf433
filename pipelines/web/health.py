"""The sections of the page about the data's health: what was rejected, audited and read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from pipelines.web import formats, words
from pipelines.web.views import View

#: Budget periods that are listed, the newest ones.
_PERIODS = 60
#: What a job says of itself.
_NUMBERS = {
    "reports": "reports decoded",
    "duplicates": "of them repeats of a report that was known, which count once",
    "counted": "answers that count",
    "superseded": "reports replaced by a newer level of the same answer",
    "revoked": "pseudonyms revoked",
    "chains": "answers in open budget periods",
    "pseudonyms": "pseudonyms in open budget periods",
    "state_bytes": "state of open budget periods",
}


class Rejected(NamedTuple):
    """Rejected reports of one reason; ``part`` is per cent of the most frequent."""

    collector: str
    reason: str
    meaning: str
    reports: int
    requeued: int | None
    part: float


def rejections(view: View) -> Mapping[str, object]:
    """Return the rejected reports by reason, most first."""
    found = sorted(view.snapshot.rejections, key=lambda each: (-each.reports, each.reason))
    most = max((each.reports for each in found), default=1)
    rows = [
        Rejected(
            each.collector,
            each.reason,
            words.reason(each.reason),
            each.reports,
            each.requeued,
            round(100 * each.reports / max(most, 1), 2),
        )
        for each in found
    ]
    total = sum(each.reports for each in found)
    return {"rows": rows, "total": total, "several": len({each.collector for each in rows}) > 1}


def budgets(view: View) -> Mapping[str, object]:
    """Return the audit of the newest budget periods, newest first."""
    found = sorted(view.snapshot.budgets, key=lambda each: each.period_start, reverse=True)
    ceilings = {plan.collector: plan.ceilings.period / 1e6 for plan in view.snapshot.plans}
    several = len({each.collector for each in found}) > 1
    shown = found[:_PERIODS]
    return {"rows": shown, "total": len(found), "ceilings": ceilings, "several": several}


def job(view: View) -> Mapping[str, object]:
    """Return how far the job is, and what it says of itself."""
    jobs = []
    for each in view.snapshot.health:
        numbers = [
            (formats.size(value) if name == "state_bytes" else f"{value:,}", text)
            for name, text in _NUMBERS.items()
            if (value := each.numbers.get(name)) is not None
        ]
        jobs.append((each, numbers))
    return {"jobs": jobs, "runs": list(_runs(view))}


def _runs(view: View) -> list[tuple[str, str]]:
    """Return what is known of the last run, as terms and what they are."""
    last = view.snapshot.last_run
    if last is None:
        return []
    found = [("log last read to its end", formats.moment(_time(last.looked)))]
    if last.finished is not None:
        found.append(("last commit", formats.moment(_time(last.finished))))
    if last.seconds is not None:
        found.append(("that run took", f"{last.seconds:,.1f} s"))
    return found


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
