"""Invented findings, to draw the report without running the demo."""

from __future__ import annotations

import math
import random

from examples.flights.findings import (
    Comparison,
    Coverage,
    Decoding,
    DelayCurve,
    Destination,
    Fate,
    Findings,
    LedgerPeriod,
    LevelError,
    MetricErrors,
    Planted,
    Quarantined,
    Release,
    Revocation,
    Run,
    Sharpening,
    Timing,
    Totals,
    WindowSeries,
)

DAY = 86_400_000
AIRLINES = ("9E", "AA", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "UA", "US", "WN", "other")


def findings(seed: int = 1) -> Findings:
    """Return findings of the demo's shape with invented numbers."""
    rng = random.Random(seed)

    def around(label: str, truth: float, error: float, n: int = 8000) -> Comparison:
        value = truth + rng.gauss(0, error)
        every = truth * 1.03
        return Comparison(label, value, value - 1.96 * error, value + 1.96 * error, truth, every, n)

    def sharpening(label: str, unit: str, truth: float, scale: float) -> Sharpening:
        releases = []
        for week in range(1, 9):
            n = min(week, 4) * 2000
            third = max(0, min(week - 1, 4)) * 2000
            levels = (max(0, n - third) // 2, n - third - max(0, n - third) // 2, third)
            error = scale / math.sqrt(n) * (1 + 3 * (n - third) / n)
            releases.append(Release(7.0 * week, levels, around(label, truth, error, n)))
        return Sharpening(label, unit, 28, truth, releases)

    def series(label: str, unit: str, truth: float, error: float) -> WindowSeries:
        starts = [(15680 + 28 * i) * DAY for i in range(14)]
        values = [
            around(label, truth * (1 + 0.2 * math.sin(i)), error * (3 if i in (0, 13) else 1))
            for i in range(14)
        ]
        return WindowSeries(label, unit, starts, values)

    grid = list(range(-30, 181, 5))
    true = [1 / (1 + math.exp(-(x + 2) / 12)) for x in grid]
    stops = [
        Destination(
            f"A{i:02}",
            f"Airport number {i}",
            rng.uniform(26, 48),
            rng.uniform(-122, -70),
            around(f"A{i:02}", 0.07 / (1 + i / 4), 0.004),
            Fate.FOUND if i < 15 else Fate.MISSED if i < 17 else Fate.UNDETECTABLE,
        )
        for i in range(100)
    ]
    weeks = [(15701 + 7 * i) * DAY for i in range(53)]
    return Findings(
        totals=Totals(
            336776,
            4043,
            1_671_320,
            547_655,
            1_642_965,
            650_000,
            130_000_000,
            {"no device id": 2512},
            9.999994,
            12,
            640,
        ),
        sharpening=[
            sharpening("delayed or cancelled", "", 0.24, 2.0),
            sharpening("mean departure delay, min", "min", 12.0, 180.0),
        ],
        carriers=[around(c, 0.17 / (1 + i), 0.008) for i, c in enumerate(AIRLINES)],
        carriers_window=15876 * DAY,
        airlines={c: f"Airline {c} Inc." for c in AIRLINES[:-1]},
        series={
            "delayed": series("delayed or cancelled", "", 0.24, 0.01),
            "delay": series("mean departure delay, min", "min", 12.0, 2.0),
            "missing": series("cancelled", "", 0.02, 0.008),
            "distance": series("mean distance, mi", "mi", 1040.0, 40.0),
        },
        quantiles=[
            around(f"{q:g} %", v, 2.0)
            for q, v in zip((10, 25, 50, 75, 90), (-7, -5, -2, 11, 49), strict=True)
        ],
        curve=DelayCurve(
            grid,
            [t + rng.gauss(0, 0.01) for t in true],
            [t - 0.02 for t in true],
            [t + 0.02 for t in true],
            grid,
            true,
        ),
        decoding=Decoding(
            stops,
            1458,
            0.0171,
            around("unexplained", 0.022, 0.01),
            {"SJU": 0.016, "BQN": 0.003},
            [(rng.uniform(25, 49), rng.uniform(-124, -68)) for _ in range(1400)],
        ),
        coverage=[
            Coverage("carrier", 226, 238, 219, 234),
            Coverage("delayed", 14, 14, 11, 14),
            Coverage("mean delay", 13, 14, 11, 14),
            Coverage("destination", 1390, 1458, 1364, 1406),
            Coverage("all", 1643, 1724, 1615, 1660),
        ],
        scores=[rng.gauss(0, 1) for _ in range(1724)],
        errors=[
            MetricErrors(
                label,
                unit,
                [
                    LevelError(e, s / e * rng.uniform(0.95, 1.05), s / e, s / e * 0.9, s / e * 1.1)
                    for e in (0.5, 1.0, 2.0)
                ],
                1.01,
                0.9,
                1.1,
            )
            for label, unit, s in (
                ("carrier", "", 0.02),
                ("dest", "", 0.03),
                ("dep_delay", "min", 4.0),
                ("distance", "mi", 90.0),
                ("delayed", "", 0.04),
            )
        ],
        ledger=[
            LedgerPeriod(
                w,
                2050,
                20_500_000_000,
                20_500_000_000 - 20_000_000 * (i == 20),
                20_000_000 * (i == 20),
            )
            for i, w in enumerate(weeks)
        ],
        lifetimes=[10.0 * rng.randint(1, 53) for _ in range(4037)],
        revocations=[
            Revocation("overspends", weeks[20], "over_budget", 9_999_994, 0, 13_999_990),
            Revocation("re-randomizes", weeks[20], "equivocation", 9_999_994, 0, 9_999_994),
        ],
        agreeing=(2050, 2052),
        quarantine=[
            Quarantined("malformed", "bytes that are no message", 1200, 1200),
            Quarantined("over_budget", "a pseudonym spent more than a week's budget", 17, 17),
        ],
        planted=[
            Planted("messages sent twice", 13_000, "counted once"),
            Planted("weaker levels arriving after stronger ones", 9_000, "the stronger one stays"),
        ],
        runs=[
            Run(starts * DAY, 1, 60_000_000, 800_000, 300_000, 500_000, 9_000, 6.0)
            for starts in (15883, 15890)
        ],
        equal_windows=(3500, 3500),
        timings=[Timing("replay", 70.0), Timing("runs", 30.0), Timing("checks", 20.0)],
    )
