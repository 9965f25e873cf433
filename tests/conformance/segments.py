"""Segments and arms: the plan's fingerprint, the number of a cell, a device's arm, and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mechanisms import coins
from sotto.plan.compiled import CompiledPlan
from sotto.plan.segments import Attribute, Experiment, cell_of
from sotto.wire.format import encode_message
from tests.conformance import files
from tests.conformance.reference import wire


def _ours(kind: str, given: dict[str, Any], plan: CompiledPlan) -> Any:
    if kind == "fingerprint":
        return plan.fingerprint_hex
    if kind == "cell":
        return cell_of([Attribute(name, tuple(v)) for name, v in given["of"]], given["values"])
    if kind == "arm":
        experiment = Experiment(given["name"], tuple(given["arms"]), given["share"])
        return experiment.arm(bytes.fromhex(given["secret"]), given["collector"])
    row = files.row_of(given["row"])
    shard = coins.shard_of(row.pseudonym, plan.shards)
    return encode_message(plan.fingerprint, shard, [(0, [row])], cell=given["cell"]).hex()


def _by_the_page(kind: str, given: dict[str, Any], plan: dict[str, Any]) -> Any:
    if kind == "fingerprint":
        return wire.fingerprint(plan).hex()
    if kind == "cell":
        return wire.cell(given["of"], given["values"])
    if kind == "arm":
        return wire.arm(bytes.fromhex(given["secret"]), given["collector"], given)
    groups = [{"metric": 0, "rows": [given["row"]]}]
    return wire.message(plan, groups, cell=given["cell"]).hex()


def write() -> None:
    content = files.read("segments")
    plan = CompiledPlan.from_json(content["plan"].encode())
    for each in content["vectors"]:
        each["is"] = _ours(each["kind"], each["given"], plan)
    files.write("segments", vectors=content["vectors"])


def check() -> Iterator[str | None]:
    content = files.read("segments")
    plan, document = CompiledPlan.from_json(content["plan"].encode()), json.loads(content["plan"])
    for each in content["vectors"]:
        kind, given, expected = each["kind"], each["given"], each["is"]
        both = _ours(kind, given, plan), _by_the_page(kind, given, document)
        yield None if both == (expected, expected) else f"{kind} of {given} is {both}"
