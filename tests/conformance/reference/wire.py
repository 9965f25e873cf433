"""Hashes, identities and bytes; written from the pages of ``docs/spec`` alone."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

MASK = 2**64 - 1
_TAG = bytes.fromhex("ed2519")
_COVERED = ["collector", "plan", "version", "period", "resolution", "grace", "shards", "ceilings"]
_COVERED += ["authentication", "segments", "experiment"]
_OF_METRIC = ["name", "type", "mechanism", "missing", "window", "repeat", "ladder", "panel"]
_OF_METRIC += ["domain", "outside", "range", "edges", "measure", "group"]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def fingerprint(plan: dict[str, Any]) -> bytes:
    wire = {key: plan[key] for key in _COVERED if key in plan}
    wire["metrics"] = [{key: m[key] for key in _OF_METRIC if key in m} for m in plan["metrics"]]
    return sha(b"sotto.fingerprint\0", canonical(wire))


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def public_hash(identifier: bytes, purpose: str) -> int:
    domain = int.from_bytes(sha(purpose.encode())[:8], "little")
    low = int.from_bytes(identifier[:8], "little")
    high = int.from_bytes(identifier[8:], "little")
    return mix(mix(low ^ domain) ^ high)


def coin(seed: int, index: int) -> int:
    return mix((seed + (index + 1) * 0x9E3779B97F4A7C15) & MASK)


def bloom_positions(string: bytes, cohort: int, hashes: int, bits: int) -> list[int]:
    digest = sha(b"sotto.bloom\0", cohort.to_bytes(4, "little"), string)
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little") % bits for i in range(hashes)]


# The device's identity in a period.


def ratchet(secret: bytes, fresh: bytes) -> bytes:
    return sha(b"sotto.ratchet\0", secret, fresh)


def _derived(purpose: bytes, collector: str, period: int, secret: bytes) -> bytes:
    number = period.to_bytes(8, "little", signed=True)
    return sha(purpose, b"\0", collector.encode(), b"\0", number, secret)


def pseudonym(collector: str, period: int, secret: bytes) -> bytes:
    found = _derived(b"sotto.pseudonym", collector, period, secret)[:16]
    return bytes([found[0] ^ 1]) + found[1:] if found.startswith(_TAG) else found


def signing_seed(collector: str, period: int, secret: bytes) -> bytes:
    return _derived(b"sotto.signature", collector, period, secret)


def signed_pseudonym(collector: str, period: int, public_key: bytes) -> bytes:
    number = period.to_bytes(8, "little", signed=True)
    return (
        _TAG + sha(b"sotto.pseudonym.signed\0", collector.encode(), b"\0", number, public_key)[:13]
    )


def turn(secret: bytes, panels: int, cycle: int) -> int:
    numbers = panels.to_bytes(8, "little") + cycle.to_bytes(8, "little", signed=True)
    return int.from_bytes(sha(b"sotto.panel\0", secret, numbers)[:16], "little") % panels


# Segments.


def cell(attributes: list[Any], values: dict[str, Any]) -> int:
    """Return the number of a cell; the last value of an attribute is that of all others."""
    number = 0
    for name, listed in attributes:
        value = values.get(name)
        number *= len(listed)
        number += listed.index(value) if value in listed else len(listed) - 1
    return number


def arm(secret: bytes, collector: str, experiment: dict[str, Any]) -> str | None:
    arms = experiment["arms"]
    hashed = sha(b"sotto.arm\0", secret, collector.encode(), b"\0", experiment["name"].encode())
    drawn = int.from_bytes(hashed[:16], "little") % (1_000_000 * len(arms))
    part = drawn // len(arms) < experiment["share"]
    return str(arms[drawn % len(arms)]) if part else None


# Messages.


def message(
    plan: dict[str, Any],
    groups: list[dict[str, Any]],
    signer: tuple[bytes, Any] | None = None,
    cell: int = 0,
) -> bytes:
    """Return a message's bytes; ``signer`` is a public key and what signs bytes."""
    shard = public_hash(bytes.fromhex(groups[0]["rows"][0]["pseudonym"]), "sotto.shard")
    header = 2 if signer else 1, cell, shard % plan["shards"], len(groups), fingerprint(plan)
    out = struct.pack("<2sBBHH32s", b"SO", *header)
    for group in groups:
        rows = group["rows"]
        out += struct.pack("<HHI", group["metric"], len(rows[0]["payload"]) // 2, len(rows))
        for row in rows:
            out += bytes([row["level"]]) + bytes.fromhex(row["pseudonym"] + row["chain"])
            out += struct.pack("<q", row["event"]) + bytes.fromhex(row["payload"])
    if signer:
        public_key, sign = signer
        out += public_key
        out += sign(b"sotto.message.signed\0" + out)
    return out


def body(messages: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(each)) + each for each in messages)
