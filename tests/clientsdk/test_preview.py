"""Views for a user: what would be sent, byte for byte, and what was spent, in words."""

from __future__ import annotations

import json

import pytest
from device_plans import CONSTANT, DAY, HOUR, START, WEEK, items, metric, number, plan, string
from plan_texts import plan_head
from slow_publishers import Failing

from clientsdk import PendingChain, Settings
from clientsdk.preview import meaning, preview_file
from clientsdk.store import rollback_guard
from clientsdk.testing import FakeClock, SeededClient, reported
from mechanisms.testing import SeededSource
from sotto.errors import PublishError, StoreError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import Ceilings
from sotto.wire.format import Row
from sotto_cli import main

METRICS = (
    metric("colour", "every", limit=2),
    number("size", unit="cm"),
    string("word", ladder=[(500_000, 0), (1_000_000, DAY), (1_500_000, WEEK)]),
    metric("late", "reservoir"),
    metric("model", "constant", ladder=CONSTANT),
    items(),
)


def device(tmp_path, **options):
    options.setdefault("clock", FakeClock(START))
    return SeededClient(plan(*METRICS), seed=3, state=tmp_path / "device.db", **options)


def fill(client):
    for value in ("a", "b", "c"):
        client.record("colour", value)
        client.clock.advance(minutes=40)
    client.record("size", 3)
    client.record("word", "telemetry")
    client.record("late", "a")
    client.record("model", "b")


def contents(folder):
    """The contents of the files, but for SQLite's table of readers."""
    return {
        each.name: each.read_bytes() for each in folder.iterdir() if not each.name.endswith("-shm")
    }


def test_what_is_shown_is_what_flushes_send_when_it_is_due_byte_for_byte(tmp_path):
    client = device(tmp_path)
    fill(client)
    shown = client.preview()
    assert client.publisher.messages == []
    for message in shown.messages:
        client.publisher.messages.clear()
        client.clock.now = message.due
        assert client.next_due() <= message.due
        client.flush()
        assert (message.shard, message.data) in client.publisher.messages
    assert client.preview().messages == ()
    # Two colours, a size and a word in three levels, the others in two.
    assert len(shown.reports) == 4 * 3 + 2 * 2
    assert [each.due for each in shown.reports] == sorted(each.due for each in shown.reports)
    for report in shown.reports:
        assert 1 <= report.level <= report.levels
        assert report.event in (START, START + HOUR, START + 2 * HOUR)


@pytest.mark.parametrize("later", [2 * HOUR, 2 * DAY, WEEK + DAY, 2 * WEEK + DAY])
def test_what_one_flush_would_send_at_a_time(tmp_path, later):
    client = device(tmp_path)
    fill(client)
    client.clock.now = START + later
    client.next_due()
    shown = client.preview(at=(START + later) / 1000)
    client.flush()
    assert [(each.shard, each.data) for each in shown.messages] == client.publisher.messages
    assert shown.messages


def test_what_was_charged_and_not_delivered_is_shown_as_it_will_be_sent_again(tmp_path):
    client = device(tmp_path)
    fill(client)
    client.clock.now = START + 2 * DAY
    whole = client.preview(at=client.clock())
    client._outgoing.sender._charge(client.clock.now, None)
    assert client.preview(at=client.clock()) == whole


def test_what_a_lowered_ceiling_forbids_is_not_shown(tmp_path):
    client = device(tmp_path)
    fill(client)
    client.close()
    client = device(tmp_path, ceilings=Ceilings(1_500_000, 640_000_000))
    client.clock.now = START + 2 * DAY
    shown = client.preview(at=client.clock())
    client.flush()
    assert [(each.shard, each.data) for each in shown.messages] == client.publisher.messages
    assert sum(each.epsilon for each in shown.reports) <= 1_500_000


def test_showing_changes_nothing(tmp_path):
    client = device(tmp_path)
    fill(client)
    ledger, before = client.ledger(), contents(tmp_path)
    first = client.preview()
    assert client.preview() == first
    after = contents(tmp_path)
    assert [name for name in after if after[name] != before[name]] == []
    assert client.ledger() == ledger


def test_without_consent_there_is_nothing_to_show(tmp_path):
    client = device(tmp_path)
    fill(client)
    client.withdraw_consent()
    assert client.preview().messages == ()
    assert str(client.preview()) == "Nothing is to be sent."
    off = SeededClient(plan(*METRICS), seed=1, settings=Settings(disabled=True))
    with pytest.raises(StoreError, match="switched off"):
        off.preview()


def test_words_are_shown_and_no_repr_has_them(tmp_path):
    client = device(tmp_path)
    fill(client)
    shown, ledger = client.preview(), client.ledger()
    line = next(line for line in str(shown).splitlines() if "trial/size" in line)
    assert line.startswith("2025-07-31 ")
    assert (
        "of about 2025-07-31 02:00, release 1 of 3 (epsilon 0.5 in all), randomized answer: "
        in line
    )
    assert line.endswith((" cm", "missing"))
    hidden = [each.chain.hex() for each in shown.reports] + [shown.reports[0].pseudonym.hex()]
    text = repr(shown) + repr(ledger)
    assert not any(each in text for each in hidden)
    assert not any(
        repr(each.meaning) in text or str(each.payload) in text for each in shown.reports
    )
    assert ledger.pending[0].chain not in text


def test_the_ledger_in_words_level_by_level(tmp_path):
    client = device(tmp_path)
    assert str(client.ledger()).splitlines() == [
        "You have agreed that randomized answers are sent to fleet.example.",
        "What is sent about one period costs at most epsilon 12, and 640 in this device's life. "
        "The lower, the less can be learnt.",
        "So far 0 is spent, of 0 that is set aside.",
        "Nothing is left to be sent.",
    ]
    client.record("colour", "a")
    client.record("model", "a")
    client.clock.now = START + 2 * HOUR
    client.flush()
    chain: PendingChain
    for chain in client.ledger().pending:
        assert chain.costs[-1] == chain.reserved
        assert chain.costs[chain.charged - 1] == chain.spent
    lines = client.ledger().in_words().splitlines()
    assert lines[2:6] == [
        "So far 2.5 is spent, of 4 that is set aside.",
        "2025-07-31 to 2025-08-07: 2 values recorded; spent 1 of 3 set aside.",
        "trial/model: 2 once for all periods, for an answer that is kept here.",
        "Still to be sent:",
    ]
    assert sorted(line.partition("; next at ")[0] for line in lines[6:]) == [
        "  trial/colour, recorded about 2025-07-31 00:00: epsilon 0.5 (sent), 1 (not sent yet), "
        "2 (not sent yet)",
        "  trial/model, recorded about 2025-07-31 00:00: epsilon 0.5 (sent), 1 (not sent yet)",
    ]
    client.withdraw_consent()
    assert str(client.ledger()).startswith("You have withdrawn your consent")


def test_of_a_level_that_was_passed_over_it_is_not_said_that_it_was_sent(tmp_path):
    """The newer of two that are due at once is sent alone; until it is taken, it is on its way."""

    def shown():
        return str(client.ledger()).splitlines()[-1].partition("epsilon ")[2].partition(";")[0]

    client = device(tmp_path)
    client.record("colour", "a")
    client.clock.advance(days=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.publisher, "publish", Failing(PublishError("no")).publish)
        assert client.flush().error is not None
        assert shown() == "0.5 (sent or passed over), 1 (on its way), 2 (not sent yet)"
    assert client.flush().sent == 1
    assert shown() == "0.5 (sent or passed over), 1 (sent), 2 (not sent yet)"
    assert reported(client).only().level == 2


def test_a_file_is_shown_without_the_app_and_not_changed(tmp_path):
    client = device(tmp_path)
    fill(client)
    client.clock.advance(hours=3)
    client.flush()
    before = contents(tmp_path)
    shown = preview_file(tmp_path / "device.db", client.clock.now)
    assert shown == client.preview()
    assert shown.reports
    after = contents(tmp_path)
    assert [name for name in after if after[name] != before[name]] == []
    client.close()
    assert preview_file(tmp_path / "device.db", client.clock.now) == shown
    with device(tmp_path) as again:
        again.withdraw_consent()
    assert preview_file(tmp_path / "device.db", client.clock.now).messages == ()


def test_a_withdrawal_that_is_only_noted_counts(tmp_path):
    with device(tmp_path) as client:
        fill(client)
    rollback_guard.note_withdrawal(str(tmp_path / "device.db"))
    assert preview_file(tmp_path / "device.db", START).messages == ()


def test_what_is_no_device_s_file_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="device's file"):
        preview_file(tmp_path / "none.db", START)
    (tmp_path / "text.db").write_text("text")
    with pytest.raises(StoreError, match="device's file"):
        preview_file(tmp_path / "text.db", START)
    assert not (tmp_path / "none.db").exists()


def test_the_command_shows_what_was_sent_and_what_is_to_be(tmp_path, capsys, monkeypatch):
    described = plan(metric("colour", description="Its colour"))
    client = SeededClient(described, seed=1, state=tmp_path / "device.db", clock=FakeClock(START))
    client.record("colour", "a")
    client.clock.advance(hours=3)
    client.flush()
    client.close()
    monkeypatch.setattr("sotto.clocks.now_ms", lambda: START + 3 * HOUR)
    assert main(["preview", str(tmp_path / "device.db")]) == 0
    told = capsys.readouterr().out
    assert "epsilon 0.5 (sent), 1 (not sent yet), 2 (not sent yet); next at" in told
    assert "To be sent, times in UTC: randomized answers. Noise hides the true values" in told
    assert "trial/colour (Its colour) of about 2025-07-31 00:00, release 2 of 3" in told
    assert main(["preview", str(tmp_path / "none.db")]) == 2


MECHANISMS = plan_head("all", (100, 1000), collector="fleet.example")
CATEGORY = "{type: category, domain: [a, b, c, d], outside: other, mechanism: NAME, TIMES}"
NUMBER = (
    "{type: number, range: [0, 10], outside: clip, unit: s, missing: true, mechanism: NAME, TIMES}"
)
TIMES = "window: 28d, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]"
KINDS = {
    "grr": (CATEGORY.replace("NAME", "grr"), "b", "'"),
    "sue": (CATEGORY.replace("NAME", "sue"), "b", "one of '|none of the values"),
    "oue": (CATEGORY.replace("NAME", "oue"), "b", "one of '|none of the values"),
    "subset": (CATEGORY.replace("NAME", "subset"), "b", "one of '"),
    "hadamard": (CATEGORY.replace("NAME", "hadamard"), "b", "one of '|none of the values"),
    "hashing": (CATEGORY.replace("NAME", "local_hashing"), "b", "one of '|none of the values"),
    "threshold": (NUMBER.replace("NAME", "threshold"), 3, "above about |at most about |missing"),
    "duchi": (NUMBER.replace("NAME", "duchi"), 3, "about 0 s|about 10 s|missing"),
    "hybrid": (NUMBER.replace("NAME", "hybrid"), 3, "about |missing"),
    "wave": (NUMBER.replace("NAME", "square_wave"), 3, "about |missing"),
    "piecewise": (NUMBER.replace("NAME", "piecewise"), 3, "about |missing"),
    "bits": (
        NUMBER.replace("NAME", "{bit_aware: sampled, bits: 6, count: 2}"),
        3,
        "bit |missing",
    ),
    "bit": (NUMBER.replace("NAME", "{bit_aware: sampled, bits: 6}"), 3, "bit |missing"),
    "split": (NUMBER.replace("NAME", "{bit_aware: split, bits: 6}"), 3, "about |missing"),
    "mood": ("{type: ordinal, values: [low, mid, high], TIMES}", "mid", "'"),
    "points": ("{type: ordinal, range: [0, 9], points: 4, outside: clip, TIMES}", 4, "'"),
    "flag": ("{type: boolean, TIMES}", True, "'true'|'false'"),
    "warner": ("{type: survey, question: Really, TIMES}", True, "'yes'|'no'"),
    "cards": (
        "{type: survey, question: Really, mechanism: {christofides: {cards: [40, 1, 59]}}, "
        "window: 28d, ladder: [{epsilon: 0.2}, {epsilon: 0.39, after: 1d}]}",
        True,
        "card ",
    ),
    "place": (
        "{type: vector, range: [-1, 1], dimensions: 4, outside: clip, TIMES}",
        [0, 1, 0, 1],
        "number 1: |number 2: |number 3: |number 4: ",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_mechanism_says_something(name):
    text, value, says = KINDS[name]
    (found,) = (
        parse_plan(f"{MECHANISMS}  {name}: {text}\n".replace("TIMES", TIMES)).compile().metrics
    )
    source = SeededSource(1)
    for number_ in range(30):
        chain = number_.to_bytes(16, "little")
        drawn = found.mechanism.draw(found.encode(value), chain, bytes(16), source)
        for level, payload in enumerate(drawn):
            told = meaning(found, Row(level, bytes(16), chain, 0, payload))
            assert told.startswith(tuple(says.split("|"))), told


def test_a_mechanism_that_supports_many_values_names_some():
    domain = json.dumps([f"value {number}" for number in range(100)])
    text = f"{{type: category, domain: {domain}, outside: other, mechanism: sue, {TIMES}}}"
    (found,) = parse_plan(f"{MECHANISMS}  many: {text}\n").compile().metrics
    payload = found.mechanism.draw(found.encode("value 3"), bytes(16), bytes(16), SeededSource(1))
    told = meaning(found, Row(0, bytes(16), bytes(16), 0, payload[0]))
    assert told.count("value ") <= 8
    assert told.endswith(" more")
