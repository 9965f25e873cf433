"""Plans and messages for the tests of what both sides agree on."""

from __future__ import annotations

import copy
import json

from sotto.plan.compiled import CompiledPlan

DAY = 86_400_000
HOUR = 3_600_000

PLAN_YAML = """\
collector: fleet.example
plan: departures
version: 3
owner: telemetry@fleet.example
expires: 2027-06-30
period: 7d
ceilings: {period: 12, lifetime: 640}
resolution: 1h
metrics:
  carrier:
    type: category
    domain: [AA, B6, DL, EV, UA]
    outside: other
    window: 28d
    repeat: {once: first}
    ladder: &ladder [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 2, after: 7d}]
  dest: {type: string, window: 364d, ladder: *ladder}
  dep_delay:
    type: number
    range: [-30, 180]
    unit: min
    outside: clip
    missing: true
    window: 28d
    repeat: {once: reservoir}
    ladder: [{epsilon: 0.5, after: 7d}, {epsilon: 1.5, after: 14d}]
  distance:
    type: number
    range: [0, 5000]
    unit: mi
    outside: clip
    mechanism: {bit_aware: sampled, bits: 10}
    window: 28d
    repeat: {every: 2}
    ladder: *ladder
"""

LADDER = [
    {"epsilon": 500_000, "after": 0},
    {"epsilon": 1_000_000, "after": DAY},
    {"epsilon": 2_000_000, "after": 7 * DAY},
]


def metric_document(name, **fields):
    """A metric of a compiled plan: a category of three unless said otherwise."""
    document = {
        "name": name,
        "type": "category",
        "mechanism": {"name": "grr", "domain_size": 3},
        "domain": ["a", "b"],
        "outside": "other",
        "missing": False,
        "window": 28 * DAY,
        "repeat": {"kind": "first", "limit": 1},
        "ladder": copy.deepcopy(LADDER),
    }
    document.update(fields)
    return {key: value for key, value in document.items() if value is not None}


def plan_document(**fields):
    """A compiled plan with one metric of each payload width 1, 2 and 16."""
    bloom = {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}
    halves = {"name": "split_bits", "bits": 9, "missing": True}
    document = {
        "format": 2,
        "collector": "fleet.example",
        "plan": "departures",
        "version": 1,
        "owner": "telemetry@fleet.example",
        "expires": 1_900_000_000_000,
        "period": 7 * DAY,
        "resolution": HOUR,
        "grace": DAY,
        "retention": 30 * DAY,
        "shards": 8,
        "ceilings": {"period": 12_000_000, "lifetime": 640_000_000},
        "metrics": [
            metric_document("colour"),
            metric_document("place", type="string", mechanism=bloom, domain=None, outside=None),
            metric_document(
                "size",
                type="number",
                mechanism=halves,
                missing=True,
                domain=None,
                range=[0.0, 1.0],
                outside="clip",
                ladder=LADDER[:2],
            ),
        ],
    }
    document.update(fields)
    return document


def canonical(document):
    """JSON as a compiled plan is written."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def compiled(**fields):
    """The plan of :func:`plan_document`."""
    return CompiledPlan.from_json(canonical(plan_document(**fields)))
