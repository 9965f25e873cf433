"""The plans of the vectors: read and named, or refused, and the integers of their samplers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sotto.errors import PlanError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan, canonical
from sotto.plan.sampler import sampler_document
from tests.conformance import files
from tests.conformance.reference import integers, wire

_FOLDER = Path(__file__).parent
#: The text of a plan up to its first metric.
_ONE = re.compile(r"metrics:\n  colour: .*\n")


def _plans() -> dict[str, CompiledPlan]:
    names = ("every", "device", "measured", "used")
    every, device, measured, used = [
        (_FOLDER / f"{name}.yaml").read_text("utf-8") for name in names
    ]
    match = _ONE.search(device)
    one = device[: match.end()]
    narrow = one.replace("period: 9, lifetime: 24", "period: 3, lifetime: 6")
    words = "description: What people do\npurpose: To do it better\n" + one
    words += one[one.index("  colour") :].replace("colour: {", "size: {group: speed, ")
    words = words.replace(
        "metrics:", "groups: {look: How it looks, speed: How fast it is}\nmetrics:"
    ).replace("colour: {", "colour: {group: look, description: The colour, data_type: usage, ")
    texts = {
        "every": every,
        "device": device,
        "narrow": narrow.replace("version: 1", "version: 2"),
        "signed": "authentication: required\n" + one.replace("plan: device", "plan: signed"),
        "soon": one.replace("plan: device", "plan: soon").replace("2100-01-01", "2025-05-12"),
        "words": words.replace("plan: device", "plan: words"),
        "other": one.replace("plan: device", "plan: other").replace("tests.", "other."),
        "measured": measured,
        "used": used,
    }
    return {name: parse_plan(text).compile() for name, text in texts.items()}


def _refused(plan: CompiledPlan) -> list[dict[str, Any]]:
    """Return documents that are no plan a device may use, and why."""
    good, text = json.loads(plan.to_json()), plan.to_json().decode()
    (metric,) = good["metrics"]
    cases = {
        "not JSON": "{",
        "a final newline": text + "\n",
        "spaces": text.replace(",", ", "),
        "keys in another order": json.dumps(dict(reversed(good.items())), separators=(",", ":")),
        "a key twice": text.replace("{", '{"collector":"x",', 1),
        "a metric twice": canonical({**good, "metrics": [metric, metric]}).decode(),
    }
    changes = yaml.safe_load((_FOLDER / "refused.yaml").read_text("utf-8"))
    for why, fields in changes["plan"].items():
        cases[why] = canonical({**good, **fields}).decode()
    for why, fields in changes["metric"].items():
        cases[why] = canonical({**good, "metrics": [{**metric, **fields}]}).decode()
    return [{"why": why, "json": each} for why, each in cases.items()]


def write() -> None:
    plans = _plans()
    files.write(
        "plans",
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
        samplers=[{"plan": name, **sampler_document(plan)} for name, plan in plans.items()],
    )


def check() -> Iterator[str | None]:
    """Return what is wrong with each vector, None where nothing is."""
    for each in files.read("plans")["plans"]:
        plan = CompiledPlan.from_json(each["json"].encode())
        ours = plan.fingerprint_hex, plan.cost, plan.permanent
        expected = each["fingerprint"], each["cost"], each["permanent"]
        theirs = wire.fingerprint(json.loads(each["json"])).hex()
        good = ours == expected and theirs == each["fingerprint"]
        yield None if good else f"plan {each['name']}: {ours}, and by the page {theirs}"
    for each in files.read("plans")["refused"]:
        try:
            CompiledPlan.from_json(each["json"].encode())
            yield f"a plan with {each['why']} is not refused"
        except PlanError:
            yield None


def check_samplers() -> Iterator[str | None]:
    for each in files.read("samplers")["samplers"]:
        plan = CompiledPlan.from_json(files.plan(each["plan"]))
        ours = {"plan": each["plan"], **sampler_document(plan)}
        yield None if ours == each else f"the sampler of plan {each['plan']} differs"
        for metric, entry in zip(
            json.loads(plan.to_json())["metrics"], each["metrics"], strict=True
        ):
            where = f"plan {each['plan']}, metric {metric['name']}"
            problem = _problem(entry)
            if metric["mechanism"]["name"] not in integers.UNEXPLAINED:
                same = integers.metric_integers(metric) == entry
                problem = problem or (None if same else "its integers differ from the page's")
            yield problem and f"{where}: {problem}"


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
