"""Fleets whose messages are signed, or are not, and what an attacker makes of what they sent."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from report_logs import Sent
from step_plans import DAY, HOUR, PERIOD, THRESHOLD, category, number, plan

from clientsdk.testing import FakeClock, SeededClient
from mechanisms.coins import shard_of
from mechanisms.frozen import replace
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import GROUP, HEADER, TRAILER, Group, Row, decode_message, encode_message
from sotto.wire.signatures import Signer

#: The beginning of a budget period.
BEGIN = 2800 * PERIOD


def fleet_plan(**fields: object) -> CompiledPlan:
    metrics = category("colour", 3, 0.5, 1, 2), number("speed", THRESHOLD, 0.25, 0.5)
    return replace(plan(1, 3.5, *metrics), **fields)


UNSIGNED = fleet_plan()
SIGNED = fleet_plan(authentication="required")
#: Plans of the same collector: another one with signatures, and one without.
OTHER = fleet_plan(version=2, authentication="required")
OPEN = fleet_plan(plan="open")


def honest(plan: CompiledPlan, devices: int, seed: int = 1, periods: int = 1) -> list[Sent]:
    """Return what devices with the real SDK send, in the order of time."""
    sent: list[Sent] = []
    for each in range(devices):
        clock = FakeClock(BEGIN + (each % 48) * HOUR)
        client = SeededClient(plan, seed=1000 * seed + each, clock=clock)
        for _ in range(periods):
            client.record("colour", f"v{each % 3}")
            for _ in range(2):
                client.record("speed", float(each % 100))
            end = clock.now + PERIOD
            while (due := client.next_due()) is not None and due < end:
                clock.now = due
                assert client.flush().error is None
                sent += [Sent(clock.now, body) for _, body in client.publisher.messages]
                client.publisher.messages.clear()
            clock.now = end
        client.close()
    return sorted(sent)


Attack = Callable[[bytes, random.Random], Iterator[bytes]]


def contradicting(message: bytes) -> list[Group]:
    return [
        Group(
            run.metric,
            tuple(row._replace(payload=bytes([1 - row.payload[0] % 2])) for row in run.rows),
        )
        for run in decode_message(message).groups
    ]


def unsigned(message: bytes, source: random.Random, plan: bytes | None = None) -> Iterator[bytes]:
    """Say something else for every key, and add chains of one's own."""
    parsed = decode_message(message)
    row = parsed.groups[0].rows[0]
    spent = [row._replace(chain=source.randbytes(16)) for _ in range(9)]
    for runs in (contradicting(message), [Group(parsed.groups[0].metric, tuple(spent))]):
        yield encode_message(plan or parsed.fingerprint, parsed.shard, runs)


def under_the_open_plan(message: bytes, source: random.Random) -> Iterator[bytes]:
    """Say it under a plan of the collector that has no signatures."""
    yield from unsigned(message, source, OPEN.fingerprint)


def own_key(message: bytes, source: random.Random) -> Iterator[bytes]:
    """Sign it with another key, or with another key's bytes in the place of the device's."""
    parsed, signer = decode_message(message), Signer(source.randbytes(32))
    forged = encode_message(parsed.fingerprint, parsed.shard, contradicting(message), signer)
    yield forged
    key, signature = message[-TRAILER:-64], forged[-64:]
    yield forged[:-TRAILER] + key + signature
    yield forged[:-64] + message[-64:]
    own = [
        Group(
            run.metric,
            tuple(row._replace(pseudonym=own_pseudonym(signer, row)) for row in run.rows[:1]),
        )
        for run in parsed.groups
    ]
    # One row of a pseudonym of his own, the others of the device's, all under his signature.
    mixed = [*own, *contradicting(message)]
    for shard in {parsed.shard, shard_of(own[0].rows[0].pseudonym, SIGNED.shards)}:
        yield encode_message(parsed.fingerprint, shard, mixed, signer)


def own_pseudonym(signer: Signer, row: Row) -> bytes:
    from sotto.wire.signatures import signed_pseudonym

    return signed_pseudonym(SIGNED.collector, row.event // PERIOD, signer.public_key)


def rearranged(message: bytes, source: random.Random) -> Iterator[bytes]:
    """Take rows away, add some, change their order, or say another level; keep the signature."""
    parsed, trailer = decode_message(message), message[-TRAILER:]
    runs = list(parsed.groups)
    row = runs[0].rows[0]
    other = row._replace(payload=bytes([1 - row.payload[0] % 2]))
    variants = [
        [*runs, Group(runs[0].metric, (other,))],
        [Group(runs[0].metric, (*runs[0].rows, other)), *runs[1:]],
        [Group(runs[0].metric, (row._replace(level=(row.level + 1) % 2, payload=other.payload),))],
        contradicting(message),
    ]
    if len(runs) > 1:
        variants += [runs[1:], runs[:-1], [runs[1], runs[0], *runs[2:]]]
    for each in variants:
        # As a signed message, its signature another message's.
        unsigned = encode_message(parsed.fingerprint, parsed.shard, each)
        yield unsigned[:2] + b"\2" + unsigned[3:] + trailer


def cut(message: bytes, source: random.Random) -> Iterator[bytes]:
    """Cut bytes off, put some in, or append some."""
    at = source.randrange(1, len(message))
    yield message[:at]
    yield message[:-TRAILER]
    yield message[:at] + source.randbytes(1) + message[at:]
    yield message + bytes(TRAILER)
    # Without its signature, and as a message that never had one.
    yield message[:2] + b"\1" + message[3:-TRAILER]
    yield message[:2] + b"\1" + message[3:]


def reframed(message: bytes, source: random.Random) -> Iterator[bytes]:
    """Say another shard, another plan, or another number of runs."""
    magic, version, flags, shard, runs, fingerprint = HEADER.unpack_from(message)
    rest = message[HEADER.size :]
    yield HEADER.pack(magic, version, flags, shard ^ 1, runs, fingerprint) + rest
    for each in (OTHER, OPEN, UNSIGNED):
        yield HEADER.pack(magic, version, flags, shard, runs, each.fingerprint) + rest
        yield HEADER.pack(magic, 1, flags, shard, runs, each.fingerprint) + rest[:-TRAILER]
    metric, width, rows = GROUP.unpack_from(rest)
    other = GROUP.pack(metric ^ 1, width, rows)
    yield message[: HEADER.size] + other + rest[GROUP.size :]


def spliced(message: bytes, source: random.Random, *, others: Sequence[bytes]) -> Iterator[bytes]:
    """Give it another message's signature."""
    yield message[:-64] + source.choice(others)[-64:]
    yield message[:-TRAILER] + source.choice(others)[-TRAILER:]


ATTACKS: dict[str, Attack] = {
    "unsigned": unsigned,
    "under the open plan": under_the_open_plan,
    "own key": own_key,
    "rearranged": rearranged,
    "cut": cut,
    "reframed": reframed,
}


def attacked(sent: Sequence[Sent], attacks: Sequence[Attack], seed: int = 7) -> list[Sent]:
    """Return what an attacker appends, who has seen all that was sent, and repeats all of it."""
    source = random.Random(seed)
    made = [
        Sent(one.append + source.randrange(-HOUR, DAY), forged)
        for one in sent
        for attack in attacks
        for forged in attack(one.message, source)
        if forged != one.message
    ]
    replayed = [Sent(one.append + source.randrange(DAY), one.message) for one in sent]
    return made + replayed
