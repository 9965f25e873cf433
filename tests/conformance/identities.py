"""Public hashes, the ratchet, pseudonyms, turns, and the bytes of messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
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

Given = dict[str, Any]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text)


def _identity(given: Given, *, signed: bool) -> device_secrets.Identity:
    secret = _bytes(given["secret"])
    return device_secrets.identity(given["collector"], given["period"], secret, signed=signed)


def _signed(given: Given) -> dict[str, str]:
    found = _identity(given, signed=True)
    assert found.seed is not None
    key = Signer(found.seed).public_key
    return {"seed": found.seed.hex(), "key": key.hex(), "pseudonym": found.pseudonym.hex()}


def _signed_by_the_page(given: Given) -> dict[str, str]:
    seed = wire.signing_seed(given["collector"], given["period"], _bytes(given["secret"]))
    key = Signer(seed).public_key
    pseudonym = wire.signed_pseudonym(given["collector"], given["period"], key)
    return {"seed": seed.hex(), "key": key.hex(), "pseudonym": pseudonym.hex()}


#: What the code makes of each kind of vector.
OURS: dict[str, Callable[[Given], Any]] = {
    "mix": lambda x: str(coins.mix64(int(x["x"]))),
    "hash": lambda x: str(coins.hash_id(_bytes(x["id"]), coins.domain(x["purpose"]))),
    "coin": lambda x: str(coin(int(x["seed"]), x["index"])),
    "threshold": lambda x: grid.threshold_of(int(x["coin"])),
    "exponent": lambda x: grid.exponent_of(int(x["coin"]), x["bits"]),
    "shard": lambda x: coins.shard_of(_bytes(x["pseudonym"]), x["shards"]),
    "bloom": lambda x: [
        *coins.bloom_positions(x["string"].encode(), x["cohort"], x["hashes"], x["bits"])
    ],
    "ratchet": lambda x: device_secrets.advance(
        _bytes(x["secret"]), GivenBits(_bytes(x["fresh"]))
    ).hex(),
    "turn": lambda x: device_secrets.slot(_bytes(x["secret"]), x["panels"], x["cycle"]),
    "pseudonym": lambda x: _identity(x, signed=False).pseudonym.hex(),
    "signed": _signed,
}
#: The same by the specification's page alone.
BY_THE_PAGE: dict[str, Callable[[Given], Any]] = {
    "mix": lambda x: str(wire.mix(int(x["x"]))),
    "hash": lambda x: str(wire.public_hash(_bytes(x["id"]), x["purpose"])),
    "coin": lambda x: str(wire.coin(int(x["seed"]), x["index"])),
    "threshold": lambda x: drawing.threshold(int(x["coin"])),
    "exponent": lambda x: drawing.exponent(int(x["coin"]), x["bits"]),
    "shard": lambda x: wire.public_hash(_bytes(x["pseudonym"]), "sotto.shard") % x["shards"],
    "bloom": lambda x: wire.bloom_positions(
        x["string"].encode(), x["cohort"], x["hashes"], x["bits"]
    ),
    "ratchet": lambda x: wire.ratchet(_bytes(x["secret"]), _bytes(x["fresh"])).hex(),
    "turn": lambda x: wire.turn(_bytes(x["secret"]), x["panels"], x["cycle"]),
    "pseudonym": lambda x: wire.pseudonym(x["collector"], x["period"], _bytes(x["secret"])).hex(),
    "signed": _signed_by_the_page,
}


def write() -> None:
    vectors = files.read("identities")["vectors"]
    for each in vectors:
        each["is"] = OURS[each["kind"]](each["given"])
    files.write("identities", vectors=vectors)


def check() -> Iterator[str | None]:
    for each in files.read("identities")["vectors"]:
        kind, given, expected = each["kind"], each["given"], each["is"]
        good = OURS[kind](given) == expected == BY_THE_PAGE[kind](given)
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
