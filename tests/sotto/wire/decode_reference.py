"""Decoding again, a message and a row at a time, as a person would who had read the format."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from mechanisms.coins import shard_of
from sotto.errors import FormatError
from sotto.wire.format import Row, decode_message, encode_message
from sotto.wire.reasons import Reason

AcceptedRow = tuple[int, int, bytes, bytes, int, int, bytes, int]
RejectedBytes = tuple[int, bytes, int, int]


def reference_decode(messages, appends, registry):
    """Return accepted rows, rejects, and the untimely rows among the rejects, all sorted."""
    accepted: list[AcceptedRow] = []
    rejected: list[RejectedBytes] = []
    untimely: list[AcceptedRow] = []
    for message, append in zip(messages, appends, strict=True):
        whole = _whole_reason(message, registry)
        if whole is not None:
            rejected.append((*whole[:1], message, append, whole[1]))
            continue
        parsed = decode_message(message)
        plan = registry.by_fingerprint[parsed.fingerprint]
        for run in parsed.groups:
            by_reason: dict[int, list[Row]] = defaultdict(list)
            reason = _run_reason(run, plan)
            for row in run.rows:
                why = reason or _row_reason(row, run.metric, parsed.shard, plan, append)
                if not reason and not plan.signed and row.pseudonym[:3] == b"\xed\x25\x19":
                    why = Reason.UNAUTHENTICATED
                by_reason[int(why)].append(row)
            for why, rows in by_reason.items():
                if why:
                    again = encode_message(
                        parsed.fingerprint, parsed.shard, [(run.metric, rows)], cell=parsed.cell
                    )
                    rejected.append((why, again, append, len(rows)))
                if why in (0, Reason.LATE, Reason.FUTURE):
                    metric = next(
                        each.id
                        for each in registry.metrics
                        if each.plan is plan and each.metric.index == run.metric
                    )
                    columns = [
                        (
                            metric,
                            row.level,
                            row.pseudonym,
                            row.chain,
                            row.event,
                            append,
                            row.payload,
                            message[3],
                        )
                        for row in rows
                    ]
                    (untimely if why else accepted).extend(columns)
    return sorted(accepted), sorted(rejected), sorted(untimely)


def _whole_reason(message, registry):
    if len(message) < 40 or message[:2] != b"SO":
        return Reason.MALFORMED, 0
    if message[2] not in (1, 2):
        return Reason.UNKNOWN_VERSION, 0
    try:
        parsed = decode_message(message)
    except FormatError:
        return Reason.MALFORMED, 0
    if parsed.fingerprint not in registry.by_fingerprint:
        return Reason.UNKNOWN_PLAN, sum(len(run.rows) for run in parsed.groups)
    plan = registry.by_fingerprint[parsed.fingerprint]
    rows = [row for run in parsed.groups for row in run.rows]
    if plan.signed != (message[2] == 2) or (plan.signed and not _is_signed(message, rows, plan)):
        return Reason.UNAUTHENTICATED, len(rows)
    return (Reason.UNKNOWN_CELL, len(rows)) if message[3] >= plan.cells else None


def _is_signed(message, rows, plan):
    """Whether a message is signed with the key to which all its rows' one pseudonym commits."""
    key, signature = message[-96:-64], message[-64:]
    names = set()
    for row in rows:
        period = (row.event // plan.period).to_bytes(8, "little", signed=True)
        bound = b"sotto.pseudonym.signed\0" + plan.collector.encode() + b"\0" + period + key
        digest = hashlib.sha256(bound).digest()
        names |= {(period, row.pseudonym), (period, b"\xed\x25\x19" + digest[:13])}
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(
            signature, b"sotto.message.signed\0" + message[:-64]
        )
    except InvalidSignature:
        return False
    return len(names) == 1


def _run_reason(run, plan):
    if run.metric >= len(plan.metrics):
        return Reason.UNKNOWN_METRIC
    if len(run.rows[0].payload) != plan.metrics[run.metric].mechanism.payload_width:
        return Reason.WRONG_WIDTH
    return 0


def _row_reason(row, index, shard, plan, append):
    metric = plan.metrics[index]
    payload = np.frombuffer(row.payload, dtype=np.uint8).reshape(1, -1)
    if shard_of(row.pseudonym, plan.shards) != shard:
        return Reason.WRONG_SHARD
    if row.level >= len(metric.ladder) - (metric.kind == "constant"):
        return Reason.IMPOSSIBLE_LEVEL
    if not metric.mechanism.valid(payload)[0]:
        return Reason.OUT_OF_DOMAIN
    if row.event % plan.resolution:
        return Reason.MISALIGNED_TIME
    if row.event > append + plan.resolution:
        return Reason.FUTURE
    return Reason.LATE if append > row.event + metric.horizon else 0


def columns_of(batches):
    """The rows of batches, sorted, as :func:`reference_decode` gives them."""
    return sorted(
        (
            batch.metric,
            int(batch.level[row]),
            batch.pseudonym[row].tobytes(),
            batch.chain[row].tobytes(),
            int(batch.event[row]),
            int(batch.append[row]),
            batch.payload[row].tobytes(),
            int(batch.cell[row]),
        )
        for batch in batches
        for row in range(len(batch))
    )


def packed(messages):
    """A buffer of messages, with junk between them, and their offsets and lengths."""
    parts, offsets, at = [], [], 0
    for number, message in enumerate(messages):
        junk = b"SO" * (number % 3)
        parts += [junk, message]
        offsets.append(at + len(junk))
        at += len(junk) + len(message)
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    return b"".join(parts), np.array(offsets, dtype=np.int64), lengths
