"""A job with results to look at: 400 made-up devices with three systems, for three weeks.

``python -m examples.notebooks.small_job FOLDER`` writes the devices' reports to FOLDER/log and
aggregates them into FOLDER/state, as ``sotto aggregate`` does. More devices of linux than of others
have a dark theme, and it starts faster there.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime
from pathlib import Path

from clientsdk import EmbeddedLogPublisher
from clientsdk.testing import FakeClock, SeededClient
from pipelines.bounded.run import aggregate
from sotto.plan.compile import load_plan

PLAN = Path(__file__).with_name("plan.yaml")
SYSTEMS = ("linux", "mac", "windows")
#: By system: how many of ten have a light and a dark theme, and how long a start takes, ms.
HABITS = {"linux": (2, 7, 600), "mac": (4, 4, 900), "windows": (6, 2, 1500)}
WEEKS = 3
START = datetime(2026, 9, 3, 12, tzinfo=UTC)


def play(folder: Path, devices: int = 400) -> Path:
    """Let devices record and send, aggregate what they sent, and return the state directory."""
    plan, chance = load_plan(PLAN).compile(), random.Random(11)
    for number in range(devices):
        clock = FakeClock(int(START.timestamp() * 1000) + chance.randrange(86_400_000))
        publisher = EmbeddedLogPublisher(folder / "log", fsync="never", clock=clock)
        # Its messages reveal the values to anyone who knows the seed: they are made up.
        client = SeededClient(
            plan, seed=number, publisher=publisher, clock=clock, leaks_values=True
        )
        system = chance.choice(SYSTEMS)
        client.set_segments({"os": system})
        light, dark, start = HABITS[system]
        theme = chance.choices(("light", "dark", "system"), (light, dark, 10 - light - dark))[0]
        for _ in range(WEEKS):
            client.record("theme", theme)
            client.record("startup", start + chance.randrange(-300, 300))
            for days in (2, 5):
                clock.advance(days=days)
                client.flush()
        client.close()
        publisher.close()
    aggregate(folder / "log", folder / "state", [plan])
    return folder / "state"


if __name__ == "__main__":
    print(play(Path(sys.argv[1])))
