"""Vectorised decoding against a message-at-a-time reference, on anything."""

import numpy as np
import pytest
from agreed_plans import DAY, HOUR, canonical, compiled, plan_document
from decode_reference import columns_of, packed, reference_decode
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.coins import shard_of
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire import authentication
from sotto.wire import groups as runs
from sotto.wire.decode import decode, encode_rows
from sotto.wire.format import MAX_MESSAGE, Row, decode_message, encode_message
from sotto.wire.reasons import Reason
from sotto.wire.signatures import Signer, signed_pseudonym, unsigned_pseudonym

PLAN = compiled()
OTHER = compiled(version=2, segments=[{"name": "os", "values": list("abcd")}])
REGISTRY = Registry([PLAN, OTHER])
SIGNED = compiled(version=3, authentication="required")
#: In which some messages have to be signed, and none may speak for their pseudonyms but they.
MIXED = Registry([PLAN, SIGNED, OTHER])
WIDTHS = [metric.mechanism.payload_width for metric in PLAN.metrics]
NOW = 1_700_000_000_000 // HOUR * HOUR

#: One pseudonym of each shard, so that a message can have several.
OF_SHARD = {}
_number = 0
while len(OF_SHARD) < PLAN.shards or min(map(len, OF_SHARD.values())) < 2:
    _pseudonym = _number.to_bytes(16, "little")
    OF_SHARD.setdefault(shard_of(_pseudonym, PLAN.shards), []).append(_pseudonym)
    _number += 1


@pytest.fixture(params=["arrays", "one by one"])
def walking(request, monkeypatch):
    """Both ways in which runs are found."""
    monkeypatch.setattr(runs, "_FEW", 0 if request.param == "arrays" else 10**9)


def check(messages, appends, registry=REGISTRY):
    buffer, offsets, lengths = packed(messages)
    before = bytes(buffer)
    decoded = decode(buffer, offsets, lengths, np.array(appends, dtype=np.int64), registry)
    accepted, rejected, untimely = reference_decode(messages, appends, registry)
    assert columns_of(decoded.batches) == accepted
    assert columns_of(decoded.untimely) == untimely
    assert sorted(decoded.rejects) == rejected
    assert buffer == before
    assert_nothing_vanished(messages, decoded, registry)
    return decoded


def assert_nothing_vanished(messages, decoded, registry=REGISTRY):
    """Every byte is in one row or in exactly one reject."""
    whole = {*(Reason.MALFORMED, Reason.UNKNOWN_VERSION, Reason.UNKNOWN_PLAN), Reason.UNKNOWN_CELL}
    # These are messages, or rows that were taken out of one.
    whole_too = {message for message in messages if message[2:3] == b"\2"} | {
        message for message in messages if SIGNED.fingerprint in message[:40]
    }
    left, parts = [], []
    for reject in decoded.rejects:
        unauthenticated = reject.reason == Reason.UNAUTHENTICATED and reject.message in whole_too
        (left if reject.reason in whole or unauthenticated else parts).append(reject.message)
    rows_in, rows_out = [], []
    for message in messages:
        if message in left:
            left.remove(message)
        else:
            rows_in += rows_of(message)
    assert not left
    for part in parts:
        rows_out += rows_of(part)
    for batch in decoded.batches:
        for message in encode_rows(batch, registry):
            rows_out += rows_of(message)
    assert sorted(rows_in) == sorted(rows_out)


def rows_of(message):
    fingerprint, shard, found, cell = decode_message(message)
    return [(fingerprint, shard, cell, run.metric, row) for run in found for row in run.rows]


@st.composite
def sound_messages(draw):
    """Messages that parse, mostly acceptable."""
    shard = draw(st.integers(0, PLAN.shards - 1))
    plan = draw(st.sampled_from([PLAN, PLAN, OTHER]))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        metric = draw(st.sampled_from([0, 0, 1, 2, 2, 3, 65535]))
        width = WIDTHS[metric] if metric < len(WIDTHS) else draw(st.integers(0, 3))
        width = draw(st.sampled_from([width] * 9 + [0, width + 1]))
        found.append((metric, draw(st.lists(row(shard, width), min_size=1, max_size=4))))
    fingerprint = draw(st.sampled_from([plan.fingerprint] * 9 + [bytes(32)]))
    cell = draw(st.sampled_from([0] * 9 + [1])) if plan is PLAN else draw(st.integers(0, 6))
    return encode_message(fingerprint, shard, found, cell=cell)


def row(shard, width):
    times = [0, 0, -5 * HOUR, -5 * HOUR, HOUR, 2 * HOUR, -1, -15 * DAY, -15 * DAY - HOUR, -16 * DAY]
    pseudonyms = OF_SHARD[shard] * 9 + OF_SHARD[(shard + 1) % PLAN.shards]
    event = st.sampled_from([NOW + time for time in times]) | st.sampled_from([-(2**63), 2**63 - 1])
    payload = st.sampled_from([bytes(width), (b"\1" + bytes(width))[:width]]) | st.binary(
        min_size=width, max_size=width
    )
    return st.builds(
        Row,
        st.sampled_from([0, 1, 2, 2, 1, 0, 3, 255]),
        st.sampled_from(pseudonyms),
        st.binary(min_size=16, max_size=16),
        event,
        payload,
    )


SIGNERS = [Signer(bytes([number]) * 32) for number in range(3)]


@st.composite
def signed_messages(draw):
    """Messages that are signed, mostly by whom they are of and for one period."""
    signer = draw(st.sampled_from(SIGNERS))
    rows = st.sampled_from([0, 0, 0, -1, -2]).map(lambda hours: signed_row(signer, hours))
    found = [
        (metric, [one._replace(payload=bytes(WIDTHS[metric])) for one in some])
        for metric, some in draw(
            st.lists(
                st.tuples(st.sampled_from([0, 1, 2]), st.lists(rows, min_size=1, max_size=3)),
                min_size=1,
                max_size=3,
            )
        )
    ]
    if draw(st.booleans()) and draw(st.booleans()):
        stranger = signed_row(draw(st.sampled_from(SIGNERS)), draw(st.sampled_from([0, -7 * 24])))
        found.append((0, [stranger]))
    plan = draw(st.sampled_from([SIGNED] * 9 + [PLAN]))
    shard = shard_of(found[0][1][0].pseudonym, PLAN.shards)
    signed_by = draw(st.sampled_from([signer] * 8 + [SIGNERS[0], None]))
    return encode_message(plan.fingerprint, shard, found, signed_by)


def signed_row(signer, hours=0):
    event = NOW + hours * HOUR
    name = signed_pseudonym(PLAN.collector, event // PLAN.period, signer.public_key)
    return Row(0, name, bytes(16), event, b"\0")


@st.composite
def damaged_messages(draw, sound=sound_messages()):  # noqa: B008
    message = bytearray(draw(sound))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(message) - 1)) if message else 0
        kind = draw(st.sampled_from(["flip", "flip", "cut", "insert", "length"]))
        if kind == "flip" and message:
            message[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del message[at:]
        elif kind == "insert":
            message[at:at] = draw(st.binary(max_size=8))
        elif len(message) > 48:
            message[44:48] = draw(st.integers(0, 2**32 - 1)).to_bytes(4, "little")
    return bytes(message)


anything = st.one_of(
    sound_messages(),
    damaged_messages(),
    st.binary(max_size=120),
    st.binary(max_size=80).map(lambda rest: b"SO\1\0" + rest),
)
anything_signed = anything | signed_messages() | damaged_messages(signed_messages())
appends = st.sampled_from([NOW, NOW, NOW + DAY, NOW - DAY, 0, -(2**63), 2**63 - 1])


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(anything_signed, appends), max_size=12))
def test_arrays_give_what_a_person_would_where_messages_are_signed(pairs):
    check([message for message, _ in pairs], [append for _, append in pairs], MIXED)


def make_messages(seed, count, most_runs=5, most_rows=6):
    rng = np.random.default_rng(seed)
    messages = []
    for _ in range(count):
        shard = int(rng.integers(PLAN.shards))
        found = []
        for _ in range(rng.integers(1, most_runs + 1)):
            metric = int(rng.integers(3))
            rows = []
            for _ in range(rng.integers(1, most_rows + 1)):
                payload = bytes(WIDTHS[metric]) if metric != 1 else rng.bytes(16)
                event = NOW - HOUR * int(rng.integers(24))
                pseudonym = OF_SHARD[shard][int(rng.integers(2))]
                rows.append(Row(int(rng.integers(2)), pseudonym, rng.bytes(16), event, payload))
            found.append((metric, rows))
        messages.append(encode_message(PLAN.fingerprint, shard, found))
    return messages


def test_many_flipped_and_cut_messages(walking):
    rng = np.random.default_rng(20)
    messages = make_messages(20, 600)
    for number in range(0, 600, 2):
        message = bytearray(messages[number])
        if number % 4:
            for at in rng.integers(0, len(message), rng.integers(1, 4)):
                message[at] ^= 1 << int(rng.integers(8))
        else:
            del message[int(rng.integers(len(message))) :]
        messages[number] = bytes(message)
    decoded = check(messages, [NOW] * len(messages))
    assert {reject.reason for reject in decoded.rejects} >= {Reason.MALFORMED, Reason.UNKNOWN_PLAN}


def test_acceptable_messages_are_accepted_whole(walking):
    messages = make_messages(21, 200)
    decoded = check(messages, [NOW] * 200)
    assert decoded.rejects == []
    assert [batch.metric for batch in decoded.batches] == [0, 1, 2]
    assert sum(map(len, decoded.batches)) == sum(len(rows_of(message)) for message in messages)
    for batch in decoded.batches:
        assert batch.pseudonym.dtype == batch.chain.dtype == np.uint64
        assert batch.event.dtype == batch.append.dtype == np.int64
        assert all(
            column.flags.c_contiguous
            for column in (batch.level, batch.pseudonym, batch.chain, batch.payload)
        )


def test_nothing_gives_nothing():
    nothing = np.empty(0, dtype=np.int64)
    assert decode(b"", nothing, nothing, nothing, REGISTRY) == ([], [], [])
    check([b"", b"S", b"SO"], [NOW] * 3)


ROW = Row(0, OF_SHARD[3][0], bytes(16), NOW, b"\0")


def one(shard=3, metric=0, fingerprint=PLAN.fingerprint, **fields):
    return encode_message(fingerprint, shard, [(metric, [ROW._replace(**fields)])])


@pytest.mark.parametrize(
    ("message", "append", "reason"),
    [
        (b"XX" + one()[2:], NOW, Reason.MALFORMED),
        (one()[:39], NOW, Reason.MALFORMED),
        (one()[:-1], NOW, Reason.MALFORMED),
        (one() + b"\0", NOW, Reason.MALFORMED),
        (one()[:6] + b"\0\0" + one()[8:], NOW, Reason.MALFORMED),
        (one()[:6] + b"\2\0" + one()[8:], NOW, Reason.MALFORMED),
        (one()[:44] + bytes(4) + one()[48:], NOW, Reason.MALFORMED),
        (one()[:44] + b"\xff" * 4 + one()[48:], NOW, Reason.MALFORMED),
        (one()[:2] + b"\2" + one()[3:], NOW, Reason.MALFORMED),
        (one()[:2] + b"\2" + one()[3:] + bytes(96), NOW, Reason.UNAUTHENTICATED),
        (one()[:2] + b"\3" + one()[3:], NOW, Reason.UNKNOWN_VERSION),
        (one()[:3] + b"\1" + one()[4:], NOW, Reason.UNKNOWN_CELL),
        (one(fingerprint=bytes(32)), NOW, Reason.UNKNOWN_PLAN),
        (one(metric=3), NOW, Reason.UNKNOWN_METRIC),
        (one(payload=b""), NOW, Reason.WRONG_WIDTH),
        (one(shard=4), NOW, Reason.WRONG_SHARD),
        (one(shard=65535), NOW, Reason.WRONG_SHARD),
        (one(level=3), NOW, Reason.IMPOSSIBLE_LEVEL),
        (one(payload=b"\3"), NOW, Reason.OUT_OF_DOMAIN),
        (one(event=NOW + 1), NOW, Reason.MISALIGNED_TIME),
        (one(event=NOW + HOUR), NOW - 1, Reason.FUTURE),
        (one(), NOW + 15 * DAY + 1, Reason.LATE),
    ],
)
def test_every_reason(message, append, reason):
    (reject,) = check([message], [append]).rejects
    assert reject.reason is reason
    assert reject.message == message
    assert reject.append == append


def test_the_bounds_of_time_are_inclusive():
    message = one(event=NOW + HOUR)
    assert PLAN.metrics[0].horizon == 15 * DAY
    assert check([message, one()], [NOW, NOW + 15 * DAY]).rejects == []


def test_a_message_longer_than_allowed_is_malformed():
    rows = [ROW] * ((MAX_MESSAGE - 48) // 42)
    longest = encode_message(PLAN.fingerprint, 3, [(0, rows)])
    too_long = bytearray(longest + longest[48:])
    too_long[44:48] = (2 * len(rows)).to_bytes(4, "little")
    buffer, offsets, lengths = packed([longest, bytes(too_long)])
    decoded = decode(buffer, offsets, lengths, np.array([NOW, NOW]), REGISTRY)
    assert [len(batch) for batch in decoded.batches] == [len(rows)]
    assert [reject.reason for reject in decoded.rejects] == [Reason.MALFORMED]


def test_a_caller_s_error_is_raised():
    for offset, length in ((-1, 2), (0, 6), (2**62, 2**62), (5, 1)):
        with pytest.raises(ParameterError):
            decode(b"12345", np.array([offset]), np.array([length]), np.array([0]), REGISTRY)


def test_a_permanent_response_is_an_impossible_level():
    """The last level of a constant metric never leaves a device."""
    document = plan_document()
    document["metrics"][0].update(repeat={"kind": "constant", "limit": 1})
    document["metrics"][0]["ladder"][2]["after"] = document["metrics"][0]["ladder"][1]["after"]
    plan = CompiledPlan.from_json(canonical(document))
    pseudonym = OF_SHARD[3][0]
    rows = [Row(level, pseudonym, bytes([level]) * 16, NOW, b"\1") for level in range(3)]
    message = encode_message(plan.fingerprint, 3, [(0, rows)])
    buffer, offsets, lengths = packed([message])
    registry = Registry([plan])
    decoded = decode(buffer, offsets, lengths, np.array([NOW]), registry)
    accepted, rejected, _ = reference_decode([message], [NOW], registry)
    assert (columns_of(decoded.batches), decoded.rejects) == (accepted, rejected)
    assert [len(batch) for batch in decoded.batches] == [2]
    [reject] = decoded.rejects
    assert reject.reason is Reason.IMPOSSIBLE_LEVEL
    assert rows_of(reject.message)[0][4] == rows[2]


# Signed messages.


MINE, THEIRS = map(signed_row, SIGNERS[:2])
#: An hour and a period earlier.
EARLIER, BEFORE = signed_row(SIGNERS[0], -1), signed_row(SIGNERS[0], -7 * 24)
UNSIGNED = MINE._replace(pseudonym=unsigned_pseudonym(MINE.pseudonym))


def signed(*rows, plan=SIGNED, signer=SIGNERS[0]):
    rows = rows or (MINE,)
    shard = shard_of(rows[0].pseudonym, PLAN.shards)
    return encode_message(plan.fingerprint, shard, [(0, rows)], signer)


def test_a_signed_message_is_accepted(walking):
    assert NOW // PLAN.period == (NOW - HOUR) // PLAN.period
    earlier = EARLIER._replace(chain=bytes([1]) * 16)
    decoded = check([signed(MINE, earlier), one()], [NOW, NOW], MIXED)
    assert decoded.rejects == []
    assert [(batch.metric, len(batch)) for batch in decoded.batches] == [(0, 1), (3, 2)]


@pytest.mark.parametrize("append", [NOW, NOW + 16 * DAY, NOW - DAY])
def test_any_single_changed_byte_of_a_signed_message_is_rejected(append):
    """Also where it comes too late or too early, and would be looked at for what it contradicts."""
    message = signed(MINE, EARLIER)
    changed = [
        message[:at] + bytes([message[at] ^ bits]) + message[at + 1 :]
        for at in range(len(message))
        for bits in (1, 0x80, 0xFF)
    ]
    # Together: that each is judged for itself is another test.
    decoded = check(changed, [append] * len(changed), MIXED)
    assert (decoded.batches, decoded.untimely) == ([], [])
    assert [reject.message for reject in decoded.rejects] == changed


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("a signed message of a plan without signatures", signed(plan=PLAN)),
        ("an unsigned one of a plan with them", one(fingerprint=SIGNED.fingerprint)),
        ("an unsigned one of a signed pseudonym", signed(MINE, plan=PLAN, signer=None)),
        ("two pseudonyms", signed(MINE, THEIRS._replace(chain=bytes(15) + b"1"))),
        ("two periods", signed(MINE, BEFORE)),
        ("one pseudonym in two periods", signed(MINE, MINE._replace(event=BEFORE.event))),
        ("another's pseudonym", signed(THEIRS)),
        ("an unsigned pseudonym", signed(UNSIGNED)),
        ("another period's pseudonym", signed(BEFORE._replace(event=NOW))),
    ],
)
@pytest.mark.parametrize("append", [NOW, NOW + 16 * DAY])
def test_what_is_not_authenticated(what, message, append, walking):
    # Also by an aggregator that does not know of any signatures yet.
    for registry in (MIXED, REGISTRY) if message[8:40] == PLAN.fingerprint else (MIXED,):
        decoded = check([message], [append], registry)
        assert (decoded.batches, decoded.untimely) == ([], [])
        (reject,) = decoded.rejects
        assert (reject.reason, reject.message) == (Reason.UNAUTHENTICATED, message)


def test_what_is_rejected_of_a_signed_message_is_kept_unsigned():
    """And so it counts nowhere if it is appended again."""
    message = signed(MINE, MINE._replace(level=9))
    (reject,) = check([message], [NOW], MIXED).rejects
    assert (reject.reason, reject.message[2], reject.rows) == (Reason.IMPOSSIBLE_LEVEL, 1, 1)
    (again,) = check([reject.message], [NOW], MIXED).rejects
    assert again.reason is Reason.UNAUTHENTICATED


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_many_signed_messages_are_verified_each_for_itself(cores, monkeypatch):
    """On several cores at once where there are many: which are forged is the same."""
    monkeypatch.setattr(authentication, "_cores", lambda: cores)
    used = []
    pool = authentication.ThreadPoolExecutor
    monkeypatch.setattr(
        authentication, "ThreadPoolExecutor", lambda threads: used.append(threads) or pool(threads)
    )
    messages = []
    for number in range(200):
        message = bytearray(signed(MINE._replace(chain=number.to_bytes(16, "little"))))
        if number % 7 == 3:
            message[-1 - number % 90] ^= 1
        messages.append(bytes(message))
    decoded = check(messages, [NOW] * 200, MIXED)
    forged = [message for number, message in enumerate(messages) if number % 7 == 3]
    assert sorted(reject.message for reject in decoded.rejects) == sorted(forged)
    assert used == ([] if cores == 1 else [cores])
