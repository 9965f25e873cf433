"""Golden files: bytes that may never change. A new meaning is a new version, and a new file."""

import hashlib
from pathlib import Path

import numpy as np

from mechanisms.coins import shard_of
from sotto.log.reader import LogReader, LogRecord
from sotto.log.writer import LogWriter
from sotto.plan.compile import load_plan, parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.plan.segments import cell_of
from sotto.wire.decode import decode
from sotto.wire.format import TRAILER, Row, decode_message, encode_message
from sotto.wire.signatures import Signer, is_valid, signed_pseudonym

GOLDEN = Path(__file__).parent / "golden"
PSEUDONYM = bytes(range(16))
EVENT = 1_399_999 * 3_600_000
APPEND = EVENT + 5_000_000
SEGMENTS = """
segments: {os: [linux, mac], app: ["1", "2", "3", "4", "5"]}
experiment: {name: onboarding, arms: [control, treatment], share: 0.25}
"""


def golden(name):
    return (GOLDEN / name).read_bytes()


def golden_rows():
    def row(level, number, payload, event=EVENT):
        return Row(level, PSEUDONYM, bytes([number]) * 16, event, payload)

    return [
        (0, [row(0, 1, b"\x05"), row(2, 2, b"\x00")]),
        (1, [row(1, 3, bytes(range(0xF0, 0x100)), EVENT - 3_600_000)]),
        (2, [row(1, 4, b"\x02")]),
        (3, [row(2, 5, b"\x01")]),
    ]


def test_the_plan_compiles_to_the_same_bytes():
    assert load_plan(GOLDEN / "plan.yaml").compile().to_json() == golden("plan.json")


def test_the_fingerprint_is_the_same():
    plan = CompiledPlan.from_json(golden("plan.json"))
    assert plan.fingerprint.hex() == golden("fingerprint.txt").decode().strip()


def test_a_message_has_the_same_bytes():
    plan = CompiledPlan.from_json(golden("plan.json"))
    shard = shard_of(PSEUDONYM, plan.shards)
    message = encode_message(plan.fingerprint, shard, golden_rows())
    assert message == golden("message.bin")
    decoded = decode_message(message)
    assert [(metric, list(rows)) for metric, rows in decoded.groups] == golden_rows()


def test_the_message_is_acceptable_under_its_plan():
    registry = Registry([CompiledPlan.from_json(golden("plan.json"))])
    message = golden("message.bin")
    decoded = decode(message, np.array([0]), np.array([len(message)]), np.array([APPEND]), registry)
    assert decoded.rejects == []
    assert [len(batch) for batch in decoded.batches] == [2, 1, 1, 1]


def test_a_signed_message_has_the_same_bytes():
    """Under no plan in particular: what is pinned is the key, the pseudonym and the signature."""
    signer = Signer(bytes(range(32)))
    pseudonym = signed_pseudonym("fleet.example", EVENT // (7 * 86_400_000), signer.public_key)
    runs = [
        (metric, [row._replace(pseudonym=pseudonym, event=EVENT) for row in rows])
        for metric, rows in golden_rows()
    ]
    shard = shard_of(pseudonym, 64)
    message = encode_message(bytes(range(32)), shard, runs, signer)
    assert message == golden("signed.bin")
    decoded = decode_message(message)
    assert (decoded.fingerprint, decoded.shard) == (bytes(range(32)), shard)
    assert [(metric, list(rows)) for metric, rows in decoded.groups] == runs
    assert message[-TRAILER:-64] == signer.public_key
    assert is_valid(signer.public_key, message[-64:], message[:-64])


def test_a_message_of_a_cell_has_the_same_bytes_but_for_one():
    """Byte 3 of the header, which was 0 in all messages before there were segments."""
    plan = parse_plan(golden("plan.yaml").decode() + SEGMENTS, GOLDEN).compile()
    assert plan.fingerprint.hex() == (
        "dae4d2fa88dc1bbd43fa7987255827378260e95b0170294ebde109ec5f091bf2"
    )
    cell = cell_of(plan.attributes, {"os": "mac", "app": "2", "onboarding": "treatment"})
    assert cell == 18 + 3 + 1
    shard = shard_of(PSEUDONYM, plan.shards)
    message = encode_message(plan.fingerprint, shard, golden_rows(), cell=cell)
    before = golden("message.bin")
    assert message == before[:3] + b"\x16" + before[4:8] + plan.fingerprint + before[40:]
    assert decode_message(message).cell == cell
    decoded = decode(
        message, np.array([0]), np.array([len(message)]), np.array([APPEND]), Registry([plan])
    )
    assert [set(batch.cell.tolist()) for batch in decoded.batches] == [{cell}] * 4


def test_a_plan_with_signatures_compiles_to_the_same_bytes():
    text = golden("plan.yaml").decode() + "authentication: required\n"
    plan = parse_plan(text, GOLDEN).compile()
    assert plan.signed
    head = b'{"authentication":"required",'
    assert plan.to_json() == head + golden("plan.json").removeprefix(b"{")
    without = parse_plan(text.replace("required", "none"), GOLDEN).compile()
    assert without.to_json() == golden("plan.json")


def test_a_log_has_the_same_bytes(tmp_path):
    with LogWriter(tmp_path, "lane") as log:
        log.append(golden("message.bin"), APPEND)
        log.append(b"not a message", APPEND - 1)
    assert (tmp_path / "lane" / f"{0:020d}.seg").read_bytes() == golden("segment.seg")
    assert list(LogReader(tmp_path / "lane").records()) == [
        LogRecord(16, APPEND, golden("message.bin")),
        LogRecord(32 + len(golden("message.bin")), APPEND, b"not a message"),
    ]


def test_line_endings_are_left_alone():
    assert (GOLDEN / ".gitattributes").read_text() == "* -text\n"


def test_a_plan_that_an_earlier_release_compiled_is_what_it_was():
    """Every mechanism that there was, before ordinals, surveys, vectors and top items."""
    plan = CompiledPlan.from_json(golden("earlier.json"))
    assert plan.fingerprint.hex() == (
        "7af37deff397ddb23dee0ab7c9856cbcbe5d175e6531281314865018099d8225"
    )
    assert {metric.mechanism.name for metric in plan.metrics} == {
        *("grr", "sue", "oue", "rappor", "threshold", "sampled_bit", "split_bits")
    }
    assert {metric.cost for metric in plan.metrics} == {1_500_000, 2_000_000, 4_000_000, 6_000_000}
    # All estimates are functions of these probabilities.
    pairs = [metric.mechanism.probabilities(0)[0] for metric in plan.metrics]
    assert hashlib.sha256(repr(pairs).encode()).hexdigest()[:16] == "f148d731e187345a"
