"""Invented findings, to draw the report without running the demo."""

from __future__ import annotations

import math
import random
from collections import Counter

from examples.flights.demo import PLAN
from examples.flights.faults import DUPLICATE, HELD_BACK, OVERSPENDS, RERANDOMIZES
from examples.flights.findings import (
    Comparison,
    Coverage,
    Findings,
    LedgerPeriod,
    MeasuredWeeks,
    Quarantined,
    Release,
    Revocation,
    WindowSeries,
)
from sotto.plan.compile import load_plan
from sotto.wire.reasons import Reason

DAY = 86_400_000
AIRLINES = ("9E", "AA", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "UA", "US", "WN", "other")


def findings(seed: int = 1) -> Findings:
    """Return findings of the demo's shape with invented numbers."""
    rng = random.Random(seed)

    def around(label: str, unit: str, truth: float, error: float, n: int = 8000) -> Comparison:
        value, every = truth + rng.gauss(0, error), truth * 1.03
        margin = 1.96 * error
        return Comparison(label, unit, value, value - margin, value + margin, truth, every, n)

    def sharpening(label: str, unit: str, truth: float, scale: float) -> list[Release]:
        releases = []
        for week in range(1, 9):
            n = min(week, 4) * 2000
            third = max(0, min(week - 1, 4)) * 2000
            levels = (max(0, n - third) // 2, n - third - max(0, n - third) // 2, third)
            error = scale / math.sqrt(n) * (1 + 3 * (n - third) / n)
            releases.append(Release(7 * week, levels, around(label, unit, truth, error, n)))
        return releases

    def series(label: str, unit: str, truth: float, error: float) -> WindowSeries:
        starts = [(15680 + 28 * i) * DAY for i in range(14)]
        values = [
            around(label, unit, truth * (1 + 0.2 * math.sin(i)), error * (3 if i in (0, 13) else 1))
            for i in range(14)
        ]
        return WindowSeries(label, unit, starts, values)

    start = (15701 + 7 * 20) * DAY
    return Findings(
        plan=load_plan(PLAN).compile(),
        flights=336776,
        devices=4043,
        skipped={"no device id": 2512},
        chains=547_655,
        reports=1_642_965,
        messages=650_000,
        log_bytes=130_000_000,
        sharpening=[
            sharpening("delayed or cancelled", "share", 0.24, 2.0),
            sharpening("mean departure delay", "min", 12.0, 180.0),
        ],
        carriers=[around(c, "share", 0.17 / (1 + i), 0.008) for i, c in enumerate(AIRLINES)],
        carriers_window=15876 * DAY,
        series=[
            series("delayed or cancelled", "share", 0.24, 0.01),
            series("mean distance", "mi", 1040.0, 40.0),
        ],
        coverage=[
            Coverage("airline shares", 226, 238, 217),
            Coverage("destinations", 1300, 1458, 1360),
            Coverage("all", 1643, 1724, 1609),
        ],
        ledger=[
            LedgerPeriod(
                20_500_000_000, 20_500_000_000 - 20_000_000 * (i == 20), 20_000_000 * (i == 20)
            )
            for i in range(53)
        ],
        revocations=[
            Revocation("overspends", start, "over_budget", 9_999_994, 13_999_990, 0),
            Revocation("re-randomizes", start, "equivocation", 9_999_994, 9_999_994, 0),
        ],
        agreeing=(2050, 2052),
        quarantine=[
            Quarantined(Reason.MALFORMED.label, 1200, 1200),
            Quarantined(Reason.LATE.label, 24, 23),
            Quarantined(Reason.REVOKED.label, None, 17),
        ],
        planted=Counter({DUPLICATE: 13_000, HELD_BACK: 9_000, OVERSPENDS: 2, RERANDOMIZES: 2}),
        duplicates=26_000,
        equal_windows=(3500, 3500),
        weeks=MeasuredWeeks(
            start=15708 * DAY,
            days=[around(str(day), "share", 0.3 / (1 + day), 0.02) for day in range(8)],
            again=[around(f"{age} weeks later", "share", 0.8, 0.05) for age in range(1, 6)],
            compared={},
            equal_windows=(18, 18),
        ),
        withheld=[("delayed", 15680 * DAY, "7 reports, the plan asks for 20")],
        seconds={"replay": 70.0, "aggregate": 30.0, "check": 20.0},
    )
