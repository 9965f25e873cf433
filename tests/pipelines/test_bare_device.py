"""A device records and sends, and a plan is checked, by the standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from every_type import KINDS, every_plan, plan_text

ROOT = Path(__file__).parents[2]
#: numpy and scipy are there, and may not be imported.
BLOCKED = "import sys\nfor name in ('numpy', 'scipy'): sys.modules[name] = None\n"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.real_randomness
def test_every_metric_is_recorded_and_sent(tmp_path):
    (tmp_path / "plan.json").write_bytes(every_plan().to_json())
    script = """
from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher
from clientsdk.testing import FakeClock
clock, publisher = FakeClock(), MemoryPublisher()
values = {"category": "red", "boolean": True, "string": "home", "number": 12.5, "ordinal": 40.0,
          "survey": False, "vector": [0.5, 0, -2], "top_item": "map"}
with Client(sys.argv[1], state=NO_LIFETIME_BOUND, publisher=publisher, clock=clock) as client:
    client.give_consent()
    for metric in client.plan.metrics:
        value = "ok" if metric.type == "ordinal" and metric.domain else values[metric.type]
        assert client.record(metric.name, value).value == "accepted", metric.name
    clock.advance(days=8)
    print(client.flush().sent, len(client.plan.metrics))
"""
    sent, metrics = map(int, run(script, str(tmp_path / "plan.json")).split())
    assert sent == metrics == len(KINDS)


@pytest.mark.real_randomness
def test_every_plan_is_chosen_for_compiled_and_checked(tmp_path):
    named = plan_text()
    open_ = "\n".join(line for line in named.splitlines() if "mechanism" not in line) + "\n"
    open_ += "  free: {type: ordinal, values: [a, b], window: 7d, ladder: [{epsilon: 1}]}\n"
    open_ += "  many: {type: category, domain: [a, b, c, d, e, f, g, h, i, j], outside: a, "
    open_ += "window: 7d, ladder: [{epsilon: 1}]}\n"
    open_ += "  size: {type: number, range: [0, 1], outside: clip, window: 7d, "
    open_ += "ladder: [{epsilon: 3}]}\n"
    open_ += "  poll: {type: survey, question: q, window: 7d, ladder: [{epsilon: 3}]}\n"
    open_ += "  spot: {type: vector, range: [0, 1], dimensions: 9, outside: clip, window: 7d, "
    open_ += "ladder: [{epsilon: 3}]}\n"
    open_ += "  best: {type: top_item, domain: [a, b], outside: a, clip: 3, window: 7d, "
    open_ += "ladder: [{epsilon: 3}]}\n"
    for name, text in {"named": named, "open": open_}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        script = "from sotto_cli import main\nsys.exit(main(['plan', 'check', sys.argv[1]]))"
        out = run(script, str(tmp_path / f"{name}.yaml"))
        assert "What the reports show:" in out
        assert ("Mechanisms that the plan left open:" in out) == (name == "open" or "late" in out)
