"""Segments and arms: the plan's fingerprint, the number of a cell, a device's arm, and messages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from mechanisms import coins
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.segments import Attribute, Experiment, cell_of
from sotto.wire.format import Row, encode_message
from tests.conformance import files
from tests.conformance.reference import wire

_PLAN = """
collector: tests.example
plan: segments
version: 1
owner: nobody@tests.example
expires: 2100-01-01
period: 7d
resolution: 1h
ceilings: {period: 9, lifetime: 24}
segments: {os: [linux, mac], app_version: ["1.0", "1.1", "2.0"]}
experiment: {name: onboarding, arms: [control, treatment], share: 0.25}
metrics:
  colour:
    {type: category, domain: [red, blue], outside: other, window: 28d, ladder: [{epsilon: 1}]}
"""


def _ours(kind: str, given: dict[str, Any], plan: CompiledPlan) -> Any:
    if kind == "fingerprint":
        return plan.fingerprint_hex
    if kind == "cell":
        return cell_of([Attribute(name, tuple(v)) for name, v in given["of"]], given["values"])
    if kind == "arm":
        experiment = Experiment(given["name"], tuple(given["arms"]), given["share"])
        return experiment.arm(bytes.fromhex(given["secret"]), given["collector"])
    row = given["row"]
    identifiers = bytes.fromhex(row["pseudonym"]), bytes.fromhex(row["chain"])
    made = Row(row["level"], *identifiers, row["event"], bytes.fromhex(row["payload"]))
    shard = coins.shard_of(made.pseudonym, plan.shards)
    return encode_message(plan.fingerprint, shard, [(0, [made])], cell=given["cell"]).hex()


def _by_the_page(kind: str, given: dict[str, Any], plan: dict[str, Any]) -> Any:
    if kind == "fingerprint":
        return wire.fingerprint(plan).hex()
    if kind == "cell":
        return wire.cell(given["of"], given["values"])
    if kind == "arm":
        return wire.arm(bytes.fromhex(given["secret"]), given["collector"], given)
    groups = [{"metric": 0, "rows": [given["row"]]}]
    return wire.message(plan, groups, cell=given["cell"]).hex()


def _given() -> list[tuple[str, dict[str, Any]]]:
    made = random.Random("segments")
    of = [["os", ["linux", "mac", "other"]], ["app_version", ["1.0", "1.1", "2.0", "other"]]]
    of.append(["onboarding", ["control", "treatment", "none"]])
    found: list[tuple[str, dict[str, Any]]] = [("fingerprint", {})]
    for os, version, arm in (
        ("linux", "1.0", "control"),
        ("mac", "2.0", "treatment"),
        ("plan9", None, None),
        (None, "1.1", "control"),
    ):
        values = {"os": os, "app_version": version, "onboarding": arm}
        found.append(("cell", {"of": of, "values": values}))
    for name, share in (("onboarding", 250_000), ("onboarding", 1_000_000), ("other-2", 500_000)):
        for collector in ("tests.example", "other.example"):
            for _ in range(3):
                given = {"name": name, "arms": ["a", "b", "c"], "share": share}
                given |= {"secret": made.randbytes(32).hex(), "collector": collector}
                found.append(("arm", given))
    for cell in (0, 1, 35):
        row = {
            "level": 0,
            "pseudonym": made.randbytes(16).hex(),
            "chain": made.randbytes(16).hex(),
            "event": made.randrange(500_000) * 3_600_000,
            "payload": made.randbytes(1).hex(),
        }
        found.append(("message", {"cell": cell, "row": row}))
    return found


def write() -> None:
    plan = parse_plan(_PLAN).compile()
    vectors = [
        {"kind": kind, "given": given, "is": _ours(kind, given, plan)} for kind, given in _given()
    ]
    files.write(
        "segments",
        "Of a plan with segments and an experiment: its fingerprint, the number of a cell, the arm "
        "that follows from a device's secret, and the bytes of a message",
        plan=plan.to_json().decode(),
        vectors=vectors,
    )


def check() -> Iterator[str | None]:
    content = files.read("segments")
    plan, document = CompiledPlan.from_json(content["plan"].encode()), json.loads(content["plan"])
    for each in content["vectors"]:
        kind, given, expected = each["kind"], each["given"], each["is"]
        both = _ours(kind, given, plan), _by_the_page(kind, given, document)
        yield None if both == (expected, expected) else f"{kind} of {given} is {both}"
