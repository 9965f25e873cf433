"""Public hashes, the ratchet, pseudonyms, turns, and the bytes of messages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from clientsdk.store import device_secrets
from mechanisms import coins
from mechanisms.number import grid
from mechanisms.number.several import coin
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import Row, encode_message
from sotto.wire.signatures import Signer
from tests.conformance import files
from tests.conformance.given import GivenBits
from tests.conformance.reference import drawing, wire

#: Of this secret the hash for collector tests.example and period 2800 begins as signed
#: pseudonyms do.
_TAGGED = "1d76950300000000000000000000000000000000000000000000000000000000"


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


def _given() -> list[tuple[str, dict[str, Any]]]:
    made = random.Random("identities")

    def some(count: int) -> str:
        return made.randbytes(count).hex()

    found: list[tuple[str, dict[str, Any]]] = [
        ("mix", {"x": str(x)}) for x in (0, 1, 2**63, 2**64 - 1)
    ]
    for purpose in ("sotto.shard", "sotto.cohort:place", "sotto.coin:size", "sotto.coin:Größe"):
        found.append(("hash", {"id": some(16), "purpose": purpose}))
    found += [("coin", {"seed": str(made.getrandbits(64)), "index": i}) for i in (0, 1, 63)]
    found.append(("coin", {"seed": str(2**64 - 1), "index": 0}))
    found += [("shard", {"pseudonym": some(16), "shards": n}) for n in (1, 2, 64, 1000, 65536)]
    for each in (0, 2047, 2048, 2**63, 2**64 - 1, made.getrandbits(64)):
        found.append(("threshold", {"coin": str(each)}))
        found += [("exponent", {"coin": str(each), "bits": bits}) for bits in (1, 6, 32)]
    for string, cohort, hashes, bits in (("Åre", 3, 2, 128), ("", 0, 8, 65536), ("\0", 7, 1, 1)):
        given = {"string": string, "cohort": cohort, "hashes": hashes, "bits": bits}
        found.append(("bloom", given))
    found += [("ratchet", {"secret": some(32), "fresh": some(32)}) for _ in range(3)]
    for panel, cycle in ((2, 0), (3, 1), (13, 215), (1000, 2), (13, -1)):
        found.append(("turn", {"secret": some(32), "panels": panel, "cycle": cycle}))
    for collector, period in (("tests.example", 2800), ("a", 0), ("fleet.example", -3)):
        for kind in ("pseudonym", "signed"):
            given = {"collector": collector, "period": period, "secret": some(32)}
            found.append((kind, given))
    tagged = {"collector": "tests.example", "period": 2800, "secret": _TAGGED}
    return [*found, ("pseudonym", tagged)]


def write() -> None:
    vectors = [{"kind": kind, "given": given, "is": _ours(kind, given)} for kind, given in _given()]
    files.write(
        "identities",
        "Hashes that both sides compute, and what a device derives from its secrets; integers of "
        "64 bits are text",
        vectors=vectors,
    )


def check() -> Iterator[str | None]:
    for each in files.read("identities")["vectors"]:
        kind, given, expected = each["kind"], each["given"], each["is"]
        good = _ours(kind, given) == expected and _by_the_page(kind, given) == expected
        yield None if good else f"{kind} of {given} is not {expected}"


# Messages.


def _rows(made: random.Random, width: int, levels: list[int], pseudonym: str) -> list[Any]:
    return [
        {
            "level": level,
            "pseudonym": pseudonym,
            "chain": made.randbytes(16).hex(),
            "event": made.randrange(-5, 500_000) * 3_600_000,
            "payload": made.randbytes(width).hex(),
        }
        for level in levels
    ]


def write_messages() -> None:
    made = random.Random("messages")
    vectors = []
    for plan, shape in (
        ("device", [(0, 1, [0])]),
        ("device", [(0, 1, [0, 2, 1]), (1, 1, [0])]),
        ("every", [(0, 1, [2]), (7, 4, [1, 1]), (16, 1, [0])]),
        ("signed", [(0, 1, [0, 1])]),
    ):
        pseudonym, seed = made.randbytes(16).hex(), None
        if plan == "signed":
            seed = made.randbytes(32).hex()
            key = Signer(_bytes(seed)).public_key
            pseudonym = wire.signed_pseudonym("tests.example", 2800, key).hex()
        groups = [
            {"metric": metric, "rows": _rows(made, width, levels, pseudonym)}
            for metric, width, levels in shape
        ]
        vector = {"plan": plan, "groups": groups} | ({"seed": seed} if seed else {})
        shard, message = _encoded(vector)
        vectors.append({**vector, "shard": shard, "message": message.hex()})
    files.write(
        "messages",
        "Rows, and the bytes of the message that holds them; a seed is of the key that signs it",
        vectors=vectors,
    )


def _encoded(vector: dict[str, Any]) -> tuple[int, bytes]:
    plan = CompiledPlan.from_json(files.plan(vector["plan"]))
    groups = [
        (
            group["metric"],
            [
                Row(
                    row["level"],
                    _bytes(row["pseudonym"]),
                    _bytes(row["chain"]),
                    row["event"],
                    _bytes(row["payload"]),
                )
                for row in group["rows"]
            ],
        )
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
