"""Pseudonyms: how they are derived, and that a secret or a copied file says nothing of others."""

from __future__ import annotations

import pytest
from scripts import PRELUDE, run

from clientsdk.store.device_secrets import Identity, Panel
from clientsdk.store.measures import MeasureRow

TWO = """
folder = Path(sys.argv[1])
client = device(metric("colour", ladder=[(500_000, 0)]), state=folder / "device.db", consent=False)
client.clock.now = START + 3 * WEEK
print("ready", flush=True)
sys.stdin.readline()
client.give_consent()
print(client._store.identity.pseudonym.hex())
"""


@pytest.mark.real_randomness
def test_processes_that_turn_a_period_over_at_once_agree(tmp_path):
    both = """
import subprocess
children = [subprocess.Popen([sys.executable, "-c", sys.argv[2], str(path)], stdin=-1, stdout=-1,
                             text=True) for _ in range(4)]
for child in children:
    assert child.stdout.readline() == "ready\\n"
for child in children:
    child.stdin.write("go\\n")
    child.stdin.flush()
print(*{child.communicate()[0] for child in children}, sep="")
"""
    assert len(run(both, tmp_path, PRELUDE + TWO).split()) == 1


@pytest.mark.parametrize(
    "value",
    [
        Identity(b"Qzx7", b"Qzx7"),
        Panel(b"Qzx7", 0),
        MeasureRow("demo/colour", 2800, 1, 0, 0, b"Qzx7"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_device_keeps_to_itself_is_in_no_repr(value):
    assert "Qzx7" not in repr(value)
