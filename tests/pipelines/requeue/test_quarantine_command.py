"""``sotto quarantine``: why reports were rejected, at which field, and what a requeue would do."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from requeued import BOTH, FIRST_PLAN, LATE_PLAN, aggregated

from pipelines.requeue.contents import QuarantineEntry, QuarantineFilter, lines, rejected
from pipelines.storage.directory import StateDirectory
from pipelines.storage.quarantine_files import held
from sotto.wire.decode import Reject
from sotto.wire.format import Row, encode_message
from sotto.wire.reasons import Reason
from sotto_cli import main

DAY = 86_400_000
METRIC = FIRST_PLAN.metrics[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return aggregated(tmp_path_factory.mktemp("quarantine"))


def shown(capsys, folder, *options):
    assert main(["quarantine", "--state", str(folder / "state"), *options]) == 0
    return capsys.readouterr().out


def documents(capsys, folder, *options):
    options = ("--format", "json", "--limit", "1000000", *options)
    return json.loads(shown(capsys, folder, *options))


def test_every_entry_is_shown_with_its_reason(capsys, folder):
    manifest = StateDirectory(folder / "state").manifest()
    counted: Counter[str] = Counter()
    for each in documents(capsys, folder):
        counted[each["reason"]] += each["reports"]
    expected: Counter[str] = Counter()
    for generation in manifest.quarantine:
        expected.update(generation.rows)
    assert counted == expected
    assert counted["unknown_plan"] > 0
    out = shown(capsys, folder).splitlines()
    assert out[0].split() == ["reason", "reports", "a", "requeue", "what", "it", "is"]
    rows = {line.split()[0]: line for line in out[1 : out.index("")]}
    assert rows.keys() == expected.keys()
    assert Reason.UNKNOWN_PLAN.text in rows["unknown_plan"]
    assert out[out.index("") + 1].split()[:5] == ["place", "taken", "reason", "field", "offset"]


def test_a_plan_that_is_given_says_what_a_requeue_takes(capsys, folder):
    before = {each["requeue"] for each in documents(capsys, folder, "--reason", "unknown_plan")}
    assert before == {"needs the plan"}
    after = documents(
        capsys, folder, "--reason", "unknown_plan", "--plan", str(folder / "late.json")
    )
    mine = LATE_PLAN.fingerprint.hex()
    cures = {(each["fingerprint"] == mine, each["requeue"]) for each in after}
    assert cures == {(True, "taken again"), (False, "needs the plan")}
    place = next(each for each in after if each["fingerprint"] == mine)
    assert (place["field"], place["offset"]) == ("fingerprint", 8)


def test_filters_leave_out_what_is_not_asked_for(capsys, folder):
    everything = documents(capsys, folder, "--plan", str(folder / "late.json"))
    times = sorted(each["appended"] for each in everything)
    middle, late = times[len(times) // 2], LATE_PLAN.fingerprint.hex()
    directory = StateDirectory(folder / "state")
    entries = list(held(directory, directory.manifest()))
    for chosen, wanted in (
        (QuarantineFilter(since=middle), lambda each: each["appended"] >= middle),
        (QuarantineFilter(until=middle), lambda each: each["appended"] <= middle),
        (
            QuarantineFilter(frozenset({Reason.MALFORMED})),
            lambda each: each["reason"] == "malformed",
        ),
        (QuarantineFilter(plan="step"), lambda each: each["plan"] == "step version 1"),
        (QuarantineFilter(plan=late[:12]), lambda each: each["fingerprint"] == late),
        (QuarantineFilter(metric=METRIC.name), lambda each: each["metric"] == METRIC.name),
    ):
        found = rejected(entries, BOTH, chosen)
        assert len(found) == sum(map(wanted, everything))
        assert 0 < len(found) < len(everything)
    # A part of a name is no name, and seven digits of a fingerprint are too few.
    for part in ("ste", late[:7]):
        assert rejected(entries, BOTH, QuarantineFilter(plan=part)) == []


def test_ids_and_bytes_are_written_out_only_when_asked_for(capsys, folder):
    short, full = documents(capsys, folder), documents(capsys, folder, "--full")
    assert all("message" not in each for each in short)
    assert {len(each["pseudonym"]) for each in short if each["pseudonym"]} == {8}
    assert {len(each["pseudonym"]) for each in full if each["pseudonym"]} == {32}
    held_bytes = {each["message"] for each in full}
    directory = StateDirectory(folder / "state")
    kept = {reject.message.hex() for _, reject, _ in held(directory, directory.manifest())}
    assert held_bytes == kept


def one(reason, *, level=0, event=0, append=0, metric=0, payload=None, cell=0, shard=0):
    """Return a reject of one row."""
    width = METRIC.mechanism.payload_width
    row = Row(level, b"p" * 16, b"c" * 16, event, bytes(width) if payload is None else payload)
    message = encode_message(FIRST_PLAN.fingerprint, shard, [(metric, [row])], cell=cell)
    return QuarantineEntry("1.0", Reject(reason, message, append, 1), False, FIRST_PLAN)


@pytest.mark.parametrize(
    ("each", "field", "detail"),
    [
        (one(Reason.LATE, append=400 * DAY), "event", "1970-01-01 is 400d before it was taken, at"),
        (one(Reason.FUTURE, event=DAY, append=7), "event", "1970-01-02 is 23h after it was taken"),
        (one(Reason.IMPOSSIBLE_LEVEL, level=9), "level", f"level 10 of {METRIC.sent}"),
        (one(Reason.WRONG_WIDTH, payload=bytes(99)), "width", "99 bytes, not "),
        (one(Reason.UNKNOWN_METRIC, metric=77), "metric", "metric 77 of "),
        (one(Reason.UNKNOWN_CELL, cell=5), "cell", "cell 5 of "),
        (one(Reason.WRONG_SHARD, shard=3), "shard", "shard 3"),
        (one(Reason.MISALIGNED_TIME, event=7), "event", "7 ms is no multiple of "),
        (one(Reason.UNKNOWN_PLAN), "fingerprint", f"{FIRST_PLAN.fingerprint.hex()[:16]}…"),
        (one(Reason.OUT_OF_DOMAIN), "payload", ""),
        (one(Reason.REVOKED), "pseudonym", ""),
    ],
)
def test_what_came_is_said_beside_what_was_expected(each, field, detail):
    found = each.document(full=False)
    assert found["field"] == field
    assert found["detail"].startswith(detail)
    # The offset is that of the field's own bytes.
    row = each.group.rows[0]
    wanted = {
        "event": row.event.to_bytes(8, "little", signed=True),
        "level": bytes([row.level]),
        "pseudonym": b"p" * 16,
        "fingerprint": FIRST_PLAN.fingerprint,
        "payload": row.payload,
        "metric": each.group.metric.to_bytes(2, "little"),
        "width": len(row.payload).to_bytes(2, "little"),
        "shard": each.message.shard.to_bytes(2, "little"),
        "cell": bytes([each.message.cell]),
    }
    assert each.reject.message[found["offset"] :].startswith(wanted[field])


def test_bytes_that_are_no_message_say_why():
    cut = QuarantineEntry("1.0", Reject(Reason.MALFORMED, b"SO" + bytes(4), 5), False, None)
    assert cut.detail == "a message has at least 40 bytes, not 6"
    assert (cut.offset, cut.cure) == (None, "rejected again")
    newer = Reject(Reason.UNKNOWN_VERSION, one(Reason.LATE).reject.message[:2] + bytes([99]), 5)
    assert QuarantineEntry("1.2", newer, False, None).cure == "needs a newer sotto"
    gone = QuarantineEntry("1.1", Reject(Reason.FORGOTTEN, b"", 5, 3), False, None)
    assert (gone.detail, gone.offset, gone.document(full=True)["reports"]) == ("", None, 3)
    out = lines([cut, gone], 1, full=False)
    assert out[-1] == "and 1 more: --limit, or ask for less"
    assert lines([], 9, full=False) == ["nothing in quarantine, or nothing that was asked for"]
