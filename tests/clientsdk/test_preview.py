"""Views for a user: what would be sent, byte for byte, and what was spent, in words."""

from __future__ import annotations

import json
import re

import pytest
from device_plans import CONSTANT, DAY, HOUR, START, WEEK, items, metric, number, plan, string
from plan_texts import plan_head

from clientsdk import PendingChain, Settings
from clientsdk.preview import meaning
from clientsdk.testing import FakeClock, SeededClient
from mechanisms.testing import SeededSource
from sotto.errors import StoreError
from sotto.plan.compile import parse_plan
from sotto.wire.format import Row
from sotto_cli import main
from tests.conformance import files

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


def test_a_client_that_is_switched_off_shows_nothing():
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
TIMES = "window: 28d, ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}]"
BIT = "bit [1-6] of 6, the highest first, is [01]"
THRESHOLD = r"(above|at most) about -?\d+(\.\d+)?"
ABOUT = r"about -?\d+(\.\d+)?"
SOME = "one of '.+'|none of the values"
#: Patterns of what the metrics of ``tests/conformance/every.yaml`` say, unless that is a symbol.
SAYS = {
    **dict.fromkeys(("sue", "oue", "hashing", "subset", "hadamard"), SOME),
    "rappor": r"a pattern of 32 bits of which \d+ are set, in cohort [1-8] of 8",
    "cards": "card [123]",
    "threshold": f"{THRESHOLD} min|missing",
    "duchi": "about (0|100)|missing",
    "bit": f"{BIT}|missing",
    "bits": f"(({BIT}|missing)(; |$)){{3}}",
    **dict.fromkeys(("split", "piecewise", "hybrid", "wave"), f"{ABOUT}|missing"),
    "thresholds": f"(number [1-5]: {THRESHOLD}(; |$)){{3}}",
    "vector_bits": f"(number [1-3]: {BIT}(; |$)){{2}}",
    "vector_grid": f"(number [1-3]: {ABOUT}(; |$)){{2}}",
}


def test_every_mechanism_says_something():
    known = parse_plan((files.FOLDER / "every.yaml").read_text("utf-8")).compile()
    source, said = SeededSource(1), set()
    for number_, vector in enumerate(files.read("draws")["vectors"]):
        found, value = known.metric(vector["metric"]), vector["value"]
        chain = number_.to_bytes(16, "little")
        symbol = value if found.type == "top_item" else found.encode(value)
        for level, payload in enumerate(found.mechanism.draw(symbol, chain, bytes(16), source)):
            told = meaning(found, Row(level, bytes(16), chain, 0, payload))
            labels = "|".join(found.labels)
            pattern = SAYS.get(found.name, f"'({labels})'|missing")
            assert re.fullmatch(pattern, told), (found.name, told)
        said.add(found.name)
    assert said == {each.name for each in known.metrics}


def test_a_mechanism_that_supports_many_values_names_some():
    domain = json.dumps([f"value {number}" for number in range(100)])
    text = f"{{type: category, domain: {domain}, outside: other, mechanism: sue, {TIMES}}}"
    (found,) = parse_plan(f"{MECHANISMS}  many: {text}\n").compile().metrics
    payload = found.mechanism.draw(found.encode("value 3"), bytes(16), bytes(16), SeededSource(1))
    told = meaning(found, Row(0, bytes(16), bytes(16), 0, payload[0]))
    assert told.count("value ") <= 8
    assert told.endswith(" more")
