"""A collector one of whose plans is loaded late, for the tests of requeue."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from report_logs import Sent, faulty, honest
from step_plans import DAY, plans

from pipelines.storage.directory import StateDirectory

#: The plan that is there from the start, and the one that is not; budget and horizon are the
#: first one's either way.
LATE_PLAN, FIRST_PLAN = plans()
BOTH = [FIRST_PLAN, LATE_PLAN]
#: Candidates of the first plan's string metric.
CANDIDATES = {FIRST_PLAN.fingerprint: {"path": ("home", "away")}}


def reports(devices: int, seed: int) -> list[Sent]:
    """Return what devices of both plans send, good and bad, before any period is over."""
    bad = [one for one in faulty(seed + 1) if one.append < min(faulty(seed + 1)).append + 15 * DAY]
    return sorted(honest(devices, 1, seed) + bad)


def audits(state: Path) -> dict[int, tuple[int, ...]]:
    audit = StateDirectory(state).manifest().audit()
    return {period: astuple(totals) for period, totals in audit.items()}
