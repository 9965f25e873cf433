"""``sotto ledger``: a device's file, a pseudonym, and mistakes."""

from __future__ import annotations

import json

import pytest

from clientsdk.testing import SeededClient, small_plan
from sotto.plan.compiled import CompiledPlan
from sotto_cli import main

NAME = "0f" * 16


@pytest.fixture
def device(tmp_path):
    return SeededClient(small_plan(), seed=1, state=tmp_path / "device.db")


@pytest.fixture
def shown(tmp_path, capsys):
    """Says what the command prints of the device's file."""

    def lines(*options):
        assert main(["ledger", str(tmp_path / "device.db"), *options]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()

    return lines


def test_a_device_s_file(device, shown):
    device.record("colour", "red")
    device.clock.advance(hours=3)
    device.flush()
    lines = shown()
    period, chain = device.ledger().periods[0], device.ledger().pending[0]
    assert lines[0] == "collector colours.example, consent given"
    assert lines[1] == "epsilon a period: at most 1.000000"
    assert period.pseudonym not in lines[5]
    assert lines[5].endswith(f"  {period.pseudonym[:8]}")
    assert lines[5].startswith("2025-06-15 to 2025-06-16")
    assert lines[8].startswith(f"{chain.chain[:8]}  colours/colour  2025-06-15 15:00       1 of 2")
    lines = shown("--full")
    assert lines[5].endswith(f"  {period.pseudonym}")
    assert lines[8].startswith(f"{chain.chain}  colours/colour")


def test_nothing_recorded_and_nothing_left(device, shown):
    assert shown()[-1] == "nothing was recorded"
    device.record("colour", "red")
    device.clock.advance(days=2)
    device.flush()
    *rest, last = shown()
    assert last == "nothing is left to be released"
    assert " erased" in "".join(rest)


def test_what_a_constant_metric_has_cost(tmp_path, shown):
    document = json.loads(small_plan().to_json())
    levels = [{"epsilon": micro, "after": 0} for micro in (500_000, 1_000_000, 2_000_000)]
    document["metrics"][0] |= {"repeat": {"kind": "constant", "limit": 1}, "ladder": levels}
    plan = CompiledPlan.from_json(
        json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    )
    device = SeededClient(plan, seed=1, state=tmp_path / "device.db")
    for _ in range(3):
        device.record("colour", "red")
        device.clock.advance(days=1)
    lines = shown()
    assert lines[2].endswith("reserved 2.000000, spent 2.000000")
    assert [line.split()[3] for line in lines[5:8]] == ["1.000000"] * 3
    assert lines[9].split("  ")[0] == "permanent response"
    assert lines[10].split() == ["colours/colour", "2.000000", "yes"]
    device.withdraw_consent()
    assert any("colours/colour                2.000000  erased" in line for line in shown())


def test_a_file_that_was_damaged(device, tmp_path, shown):
    device.record("colour", "red")
    device.clock.advance(hours=3)
    device.flush()
    device.close()
    path = tmp_path / "device.db"
    path.write_bytes(b"garbage")
    clock = device.clock
    clock.advance(days=1)
    SeededClient(small_plan(), seed=2, state=path, clock=clock).close()
    lines = shown()
    assert lines[2].endswith("reserved 2.000000, spent 2.000000")
    assert lines[3].startswith("found damaged or lost 1 times")
    assert lines[3].endswith("1.000000 carried over")


def test_a_clock_that_is_nowhere_in_a_calendar(device, shown):
    device.clock.now = 10**15 * 400
    device.record("colour", "red")
    device.clock.now = -(10**15) * 400
    assert shown()


def test_a_pseudonym(monkeypatch, capsys):
    ledger = pytest.importorskip("pipelines.storage.ledger")
    line = ledger.ChainLine(
        chain="ab" * 16,
        plan="trial",
        version=3,
        metric="colour",
        event=0,
        segment="",
        counted=1,
        accepted=1_500_000,
        payloads=(1, 2, 0),
    )
    none = ledger.ChainLine("cd" * 16, "trial", 3, "size", 0, None, 0, (1,))
    found = ledger.PseudonymLedger(
        pseudonym=NAME,
        period_start=0,
        period_end=7 * 86_400_000,
        accepted=1_500_000,
        observed=2_500_000,
        budget=12_000_000,
        revoked="equivocation",
        chains=(line, none),
    )
    monkeypatch.setattr(ledger, "pseudonym_ledger", lambda directory, name: (found,))
    assert main(["ledger", "--state", "state", "--pseudonym", NAME]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pseudonym {NAME[:8]}, 1970-01-01 to 1970-01-08"
    assert lines[1] == "epsilon counted 1.500000, seen 2.500000, budget 12.000000"
    assert lines[2] == "revoked: equivocation; nothing of it counts"
    assert lines[5].split() == [
        "ab" * 4, "trial", "v3", "colour", "1970-01-01", "00:00", "2", "1.500000", "1", "2", "0"
    ]  # fmt: skip
    assert "none" in lines[6]
    monkeypatch.setattr(ledger, "pseudonym_ledger", lambda directory, name: ())
    assert main(["ledger", "--state", "state", "--pseudonym", NAME]) == 0
    assert "nothing of pseudonym" in capsys.readouterr().out
