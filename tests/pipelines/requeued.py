"""A collector one of whose plans is loaded late, for the tests of requeue."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from report_logs import Sent, faulty, honest, write
from step_plans import DAY, plans

from pipelines.bounded.run import aggregate
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


def aggregated(folder: Path) -> Path:
    """Aggregate a log of both plans with the first alone, and with both; their files are there."""
    for name, plan in (("first", FIRST_PLAN), ("late", LATE_PLAN)):
        (folder / f"{name}.json").write_bytes(plan.to_json())
    write(folder / "log", reports(8, 3))
    aggregate(folder / "log", folder / "state", [FIRST_PLAN])
    aggregate(folder / "log", folder / "known", BOTH)
    return folder


def audits(state: Path) -> dict[int, tuple[int, ...]]:
    audit = StateDirectory(state).manifest().audit()
    return {period: astuple(totals) for period, totals in audit.items()}
