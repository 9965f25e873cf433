"""Public hashes, the ratchet, pseudonyms, turns, and the bytes of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clientsdk.store import device_secrets
from mechanisms import coins
from mechanisms.number import grid
from mechanisms.number.several import coin
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import encode_message
from sotto.wire.signatures import Signer
from tests.conformance import files
from tests.conformance.given import GivenBits
from tests.conformance.reference import drawing, wire


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text)


def _ours(kind: str, given: dict[str, Any]) -> Any:
    if kind == "mix":
        return str(coins.mix64(int(given["x"])))
    if kind == "hash":
        return str(coins.hash_id(_bytes(given["id"]), coins.domain(given["purpose"])))
    if kind == "coin":
        return str(coin(int(given["seed"]), given["index"]))
    if kind == "threshold":
        return grid.threshold_of(int(given["coin"]))
    if kind == "exponent":
        return grid.exponent_of(int(given["coin"]), given["bits"])
    if kind == "shard":
        return coins.shard_of(_bytes(given["pseudonym"]), given["shards"])
    if kind == "bloom":
        string = given["string"].encode()
        return list(coins.bloom_positions(string, given["cohort"], given["hashes"], given["bits"]))
    if kind == "ratchet":
        return device_secrets.advance(
            _bytes(given["secret"]), GivenBits(_bytes(given["fresh"]))
        ).hex()
    if kind == "turn":
        return device_secrets.slot(_bytes(given["secret"]), given["panels"], given["cycle"])
    collector, period, secret = given["collector"], given["period"], _bytes(given["secret"])
    found = device_secrets.identity(collector, period, secret, signed=kind == "signed")
    if kind == "pseudonym":
        return found.pseudonym.hex()
    assert found.seed is not None
    key = Signer(found.seed).public_key
    return {"seed": found.seed.hex(), "key": key.hex(), "pseudonym": found.pseudonym.hex()}


def _by_the_page(kind: str, given: dict[str, Any]) -> Any:
    if kind == "mix":
        return str(wire.mix(int(given["x"])))
    if kind == "hash":
        return str(wire.public_hash(_bytes(given["id"]), given["purpose"]))
    if kind == "coin":
        return str(wire.coin(int(given["seed"]), given["index"]))
    if kind == "threshold":
        return drawing.threshold(int(given["coin"]))
    if kind == "exponent":
        return drawing.exponent(int(given["coin"]), given["bits"])
    if kind == "shard":
        return wire.public_hash(_bytes(given["pseudonym"]), "sotto.shard") % given["shards"]
    if kind == "bloom":
        string = given["string"].encode()
        return wire.bloom_positions(string, given["cohort"], given["hashes"], given["bits"])
    if kind == "ratchet":
        return wire.ratchet(_bytes(given["secret"]), _bytes(given["fresh"])).hex()
    if kind == "turn":
        return wire.turn(_bytes(given["secret"]), given["panels"], given["cycle"])
    collector, period, secret = given["collector"], given["period"], _bytes(given["secret"])
    if kind == "pseudonym":
        return wire.pseudonym(collector, period, secret).hex()
    seed = wire.signing_seed(collector, period, secret)
    key = Signer(seed).public_key
    pseudonym = wire.signed_pseudonym(collector, period, key).hex()
    return {"seed": seed.hex(), "key": key.hex(), "pseudonym": pseudonym}


def write() -> None:
    vectors = files.read("identities")["vectors"]
    for each in vectors:
        each["is"] = _ours(each["kind"], each["given"])
    files.write("identities", vectors=vectors)


def check() -> Iterator[str | None]:
    for each in files.read("identities")["vectors"]:
        kind, given, expected = each["kind"], each["given"], each["is"]
        good = _ours(kind, given) == expected and _by_the_page(kind, given) == expected
        yield None if good else f"{kind} of {given} is not {expected}"


# Messages.


def write_messages() -> None:
    vectors = files.read("messages")["vectors"]
    for each in vectors:
        each["shard"], message = _encoded(each)
        each["message"] = message.hex()
    files.write("messages", vectors=vectors)


def _encoded(vector: dict[str, Any]) -> tuple[int, bytes]:
    plan = CompiledPlan.from_json(files.plan(vector["plan"]))
    groups = [
        (group["metric"], [files.row_of(row) for row in group["rows"]])
        for group in vector["groups"]
    ]
    shard = coins.shard_of(groups[0][1][0].pseudonym, plan.shards)
    signer = Signer(_bytes(vector["seed"])) if "seed" in vector else None
    return shard, encode_message(plan.fingerprint, shard, groups, signer)


def check_messages() -> Iterator[str | None]:
    for number, each in enumerate(files.read("messages")["vectors"]):
        shard, ours = _encoded(each)
        signer = None
        if "seed" in each:
            # Ed25519 itself is no part of the page; the bytes that are signed are.
            key = Signer(_bytes(each["seed"]))
            signer = key.public_key, key._key.sign
        theirs = wire.message(json.loads(files.plan(each["plan"])), each["groups"], signer)
        good = (shard, ours.hex(), theirs.hex()) == (each["shard"], *[each["message"]] * 2)
        yield None if good else f"message {number}: {ours.hex()}, {theirs.hex()}"
