"""Plans for the tests of the step: few metrics, of every payload width that matters."""

from __future__ import annotations

import json
from functools import cache

from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

HOUR = 3_600_000
DAY = 24 * HOUR
PERIOD = 7 * DAY
#: Plans are values: each is checked once.
compiled = cache(CompiledPlan.from_json)


def ladder(*epsilons: float) -> list[dict[str, int]]:
    return [
        {"epsilon": round(epsilon * 1_000_000), "after": step * DAY}
        for step, epsilon in enumerate(epsilons)
    ]


def metric(name: str, epsilons: tuple[float, ...], **fields: object) -> dict[str, object]:
    once = {"kind": "first", "limit": 1}
    own = {"name": name, "missing": False, "repeat": once, "ladder": ladder(*epsilons)}
    return {**own, **fields}


def category(name: str, size: int, *epsilons: float, mechanism: str = "grr") -> dict[str, object]:
    domain = {"domain": [f"v{value}" for value in range(size)], "outside": "v0"}
    used = {"name": mechanism, "domain_size": size}
    return metric(name, epsilons, type="category", mechanism=used, window=2 * DAY, **domain)


def string(name: str, bits: int, *epsilons: float) -> dict[str, object]:
    used = {"name": "rappor", "bits": bits, "hashes": 2, "cohorts": 2}
    return metric(name, epsilons, type="string", mechanism=used, window=7 * DAY)


def number(name: str, mechanism: dict[str, object], *epsilons: float) -> dict[str, object]:
    limits = {"range": [0.0, 100.0], "outside": "clip", "repeat": {"kind": "every", "limit": 2}}
    return metric(name, epsilons, type="number", mechanism=mechanism, window=DAY, **limits)


THRESHOLD = {"name": "threshold", "missing": False}


def plan(
    version: int, ceiling: float, *metrics: dict[str, object], **changes: object
) -> CompiledPlan:
    document = {
        "format": 2,
        "collector": "tests.example",
        "plan": "step",
        "version": version,
        "owner": "nobody@tests.example",
        "expires": 4_102_444_800_000,
        "period": PERIOD,
        "resolution": HOUR,
        "grace": DAY,
        "retention": 30 * DAY,
        "shards": 4,
        "minimum_reports": 1,
        "ceilings": {"period": round(1e6 * ceiling), "lifetime": round(1e8 * ceiling)},
        "metrics": list(metrics),
        **changes,
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return compiled(text.encode())


def plans() -> list[CompiledPlan]:
    """Two versions of a plan whose second adds a metric; six metrics are registered.

    Payloads of 1, 2, 1 and 2, 5, 16 bytes: up to four they are their own tag.
    """
    return [
        plan(1, 3.5, category("colour", 3, 0.5, 1, 2), number("speed", THRESHOLD, 0.25, 0.5)),
        plan(
            2,
            4,
            category("colour", 3, 0.5, 1, 1.5),
            category("town", 300, 0.5),
            category("shape", 40, 0.25, 0.5, mechanism="oue"),
            string("path", 128, 0.5, 1),
        ),
    ]


def registry() -> Registry:
    return Registry(plans())
