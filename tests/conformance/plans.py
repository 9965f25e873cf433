"""The plans of the vectors: read, named on the wire, certified, turned into integers; or refused."""

from __future__ import annotations

import json
from typing import Any

from sotto.errors import PlanError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan, canonical
from sotto.plan.sampler import sampler_document
from tests.conformance import files
from tests.conformance.reference import integers, wire

#: A metric of every mechanism, its ladder apart.
_EVERY = {
    "grr": "type: category, domain: [light, dark, high-contrast], outside: other, missing: true, mechanism: grr",
    "two": "type: boolean, mechanism: grr",
    "sue": "type: category, domain: [a, b, c, d], outside: d, mechanism: sue",
    "oue": "type: category, domain: [a, b, c, d], outside: other, mechanism: oue",
    "hashing": "type: category, domain: [a, b, c, d, e, f, g], outside: other, mechanism: {local_hashing: {buckets: 3}}",
    "subset": "type: category, domain: [a, b, c, d, e], outside: other, mechanism: {subset: {subset_size: 2}}",
    "hadamard": "type: category, domain: [a, b, c, d, e, f], outside: other, mechanism: {hadamard: {blocks: 2}}",
    "rappor": "type: string, bits: 32, hashes: 2, cohorts: 8, missing: true",
    "rank": "type: ordinal, values: [bad, ok, good], outside: ok, mechanism: grr",
    "brr": "type: ordinal, values: [xs, s, m, l, xl], outside: missing, missing: true, mechanism: {brr: {subset_size: 2}}",
    "points": "type: ordinal, range: [0, 100], points: 11, outside: clip, mechanism: {brr: {subset_size: 3}}",
    "warner": "type: survey, question: Did you, mechanism: warner",
    "simmons": "type: survey, question: Did you, mechanism: {simmons: {unrelated: 30}}",
    "cards": "type: survey, question: Did you, mechanism: {christofides: {cards: [6, 1, 90]}}",
    "threshold": "type: number, range: [-30, 180], unit: min, outside: clip, missing: true, mechanism: threshold",
    "duchi": "type: number, range: [0, 100], outside: clip, missing: true, mechanism: duchi",
    "bit": "type: number, range: [0, 100], outside: clip, missing: true, mechanism: {bit_aware: sampled, bits: 6}",
    "bits": "type: number, range: [0, 100], outside: clip, missing: true, mechanism: {bit_aware: sampled, bits: 6, count: 3}",
    "split": "type: number, range: [0, 100], outside: clip, missing: true, mechanism: {bit_aware: split, bits: 4}",
    "piecewise": "type: number, range: [0, 100], outside: clip, mechanism: {piecewise: {points: 9}}",
    "hybrid": "type: number, range: [0, 100], outside: clip, missing: true, mechanism: {hybrid: {points: 17}}",
    "wave": "type: number, range: [0, 100], outside: clip, mechanism: {square_wave: {points: 9}}",
    "thresholds": "type: vector, range: [-1, 1], dimensions: 5, outside: clip, mechanism: {sampled: 3}",
    "vector_bits": "type: vector, range: [-1, 1], dimensions: 3, outside: clip, mechanism: {sampled: 2, bits: 6}",
    "vector_grid": "type: vector, range: [-1, 1], dimensions: 3, outside: clip, mechanism: {sampled_hybrid: {sampled: 2, points: 9}}",
    "flips": "type: top_item, domain: [a, b, c, d], clip: 5, outside: other, mechanism: permute_and_flip",
    "top": "type: top_item, domain: [a, b, c, d], clip: 5, outside: other, mechanism: top_response",
}  # fmt: skip
_LADDER = "window: 7d, ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 3, after: 3d}]"
_HEAD = """\
collector: {collector}
plan: {plan}
version: {version}
owner: nobody@example.org
expires: 2100-01-01
period: 7d
resolution: 1h
shards: 8
ceilings: {{period: {period}, lifetime: {lifetime}}}
{more}metrics:
"""
_COLOUR = "type: category, domain: [red, green, blue], outside: other, mechanism: grr, window: 7d"
_SHORT = "ladder: [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 2, after: 7d}]"
_LATE = "ladder: [{epsilon: 0.5, after: 7d}, {epsilon: 1.5, after: 14d}]"
_DEVICE = f"""\
  colour: {{{_COLOUR}, {_SHORT}}}
  twice: {{{_COLOUR}, repeat: {{every: 2}}, ladder: [{{epsilon: 1}}]}}
  sample: {{{_COLOUR}, repeat: {{once: reservoir}}, {_LATE}}}
  lasting: {{{_COLOUR}, repeat: {{constant: true}}, ladder: [{{epsilon: 0.5}}, {{epsilon: 1, after: 1d}}, {{epsilon: 2}}]}}
  seldom: {{{_COLOUR}, panel: 1/3, ladder: [{{epsilon: 1}}]}}
  item: {{type: top_item, domain: [a, b, c], clip: 5, outside: other, mechanism: top_response, window: 7d, ladder: [{{epsilon: 1}}]}}
"""


def _head(plan: str, period: float, lifetime: float, **more: Any) -> str:
    given = {"collector": "tests.example", "version": 1, "more": "", **more}
    return _HEAD.format(plan=plan, period=period, lifetime=lifetime, **given)


def _plans() -> dict[str, CompiledPlan]:
    every = "".join(f"  {name}: {{{line}, {_LADDER}}}\n" for name, line in _EVERY.items())
    one = f"  colour: {{{_COLOUR}, {_SHORT}}}\n"
    signed = "authentication: required\n"
    words = "description: What people do\npurpose: To do it better\ngroups: {look: How it looks}\n"
    said = f"{{{_COLOUR}, {_SHORT}, group: look, description: The colour, data_type: usage}}"
    texts = {
        "every": _head("every", 100, 1000) + every,
        "device": _head("device", 9, 24) + _DEVICE,
        "narrow": _head("device", 3, 6, version=2) + one,
        "signed": _head("signed", 9, 24, more=signed) + one,
        "soon": _head("soon", 9, 24).replace("2100-01-01", "2025-05-12") + one,
        "words": _head("words", 9, 24, more=words) + f"  colour: {said}\n",
        "other": _head("other", 9, 24, collector="other.example") + one,
    }
    return {name: parse_plan(text).compile() for name, text in texts.items()}


def _refused(plan: CompiledPlan) -> list[dict[str, Any]]:
    """Return documents that are no plan a device may use, and why."""
    good = json.loads(plan.to_json())
    colour = good["metrics"][0]

    def changed(**fields: Any) -> str:
        return canonical({**good, **fields}).decode()

    def metric(**fields: Any) -> str:
        return changed(metrics=[{**colour, **fields}])

    text = plan.to_json().decode()
    ladder = colour["ladder"]
    cases = {
        "not JSON": "{",
        "a final newline": text + "\n",
        "spaces": text.replace(",", ", "),
        "keys in another order": json.dumps(dict(reversed(good.items())), separators=(",", ":")),
        "a key twice": text.replace("{", '{"collector":"x",', 1),
        "another format": changed(format=3),
        "an unknown field": changed(extra=1),
        "no metric": changed(metrics=[]),
        "a metric twice": changed(metrics=[colour, colour]),
        "a name with a space": changed(collector="two words"),
        "a version below 1": changed(version=0),
        "a float for an integer": changed(version=1.0),
        "a boolean for an integer": changed(version=True),
        "a resolution below a second": changed(resolution=999),
        "a period that is no multiple of the resolution": changed(period=good["period"] + 1),
        "no shard": changed(shards=0),
        "a ceiling of the period above the lifetime's": changed(
            ceilings={"period": 2, "lifetime": 1}
        ),
        "metrics that could spend more than the period's ceiling": changed(
            ceilings={"period": 1_999_999, "lifetime": 10_000_000}
        ),
        "an unknown type": metric(type="colour"),
        "an unknown mechanism": metric(mechanism={"name": "rot13"}),
        "a parameter too many": metric(mechanism={**colour["mechanism"], "more": 1}),
        "a parameter that does not fit the domain": metric(
            mechanism={"name": "grr", "domain_size": 3}
        ),
        "levels that do not increase": metric(ladder=[ladder[1], ladder[0]]),
        "a delay that falls": metric(ladder=[ladder[1], {**ladder[2], "after": 0}]),
        "nine levels": metric(ladder=[{"epsilon": 1000 * i, "after": 0} for i in range(1, 10)]),
        "once, and twice a period": metric(repeat={"kind": "first", "limit": 2}),
        "a reservoir released before its period is over": metric(
            repeat={"kind": "reservoir", "limit": 1}
        ),
        "a constant metric of one level": metric(
            repeat={"kind": "constant", "limit": 1}, ladder=ladder[:1]
        ),
    }
    return [{"why": why, "json": each} for why, each in cases.items()]


def write() -> None:
    plans = _plans()
    files.write(
        "plans",
        "Compiled plans that the other files name, and documents that are to be refused",
        plans=[
            {
                "name": name,
                "json": plan.to_json().decode(),
                "fingerprint": plan.fingerprint_hex,
                "cost": plan.cost,
                "permanent": plan.permanent,
            }
            for name, plan in plans.items()
        ],
        refused=_refused(plans["narrow"]),
    )
    files.write(
        "samplers",
        "The integers of these plans' samplers, as `sotto plan sampler` writes them",
        samplers=[{"plan": name, **sampler_document(plan)} for name, plan in plans.items()],
    )


def check() -> list[str | None]:
    """Return what is wrong with each vector, None where nothing is."""
    found: list[str | None] = []
    for each in files.read("plans")["plans"]:
        plan = CompiledPlan.from_json(each["json"].encode())
        ours = plan.fingerprint_hex, plan.cost, plan.permanent
        expected = each["fingerprint"], each["cost"], each["permanent"]
        theirs = wire.fingerprint(json.loads(each["json"])).hex()
        good = ours == expected and theirs == each["fingerprint"]
        found.append(None if good else f"plan {each['name']}: {ours}, and by the page {theirs}")
    for each in files.read("plans")["refused"]:
        try:
            CompiledPlan.from_json(each["json"].encode())
            found.append(f"a plan with {each['why']} is not refused")
        except PlanError:
            found.append(None)
    return found


def check_samplers() -> list[str | None]:
    found: list[str | None] = []
    for each in files.read("samplers")["samplers"]:
        plan = CompiledPlan.from_json(files.plan(each["plan"]))
        ours = {"plan": each["plan"], **sampler_document(plan)}
        found.append(None if ours == each else f"the sampler of plan {each['plan']} differs")
        for metric, entry in zip(
            json.loads(plan.to_json())["metrics"], each["metrics"], strict=True
        ):
            where = f"plan {each['plan']}, metric {metric['name']}"
            problem = _problem(entry)
            if metric["mechanism"]["name"] not in integers.UNEXPLAINED:
                same = integers.metric_integers(metric) == entry
                problem = problem or (None if same else "its integers differ from the page's")
            found.append(problem and f"{where}: {problem}")
    return found


def _problem(entry: dict[str, Any]) -> str | None:
    """Return what a client could notice of integers that cannot be right."""
    chain = entry["chain"].get("single", entry["chain"])
    for draw in chain.get("draws", ()):
        if "keep" in draw:
            total = int(draw["keep"]) + (chain["size"] - 1) * int(draw["other"])
            if total != 1 << 64:
                return "a draw's integers do not cover all words"
        for row in draw.get("rows", ()):
            if sum(int(weight) * run for weight, run in row) != 1 << 64:
                return "a row's integers do not sum to 2**64"
    if sorted(set(entry["certified"])) != entry["certified"]:
        return "certified amounts do not increase"
    return None
