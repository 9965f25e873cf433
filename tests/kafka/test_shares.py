"""Two processes drain a topic of a real broker together, are killed, and are added up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drained import drained, produce, projected, publish

from clientsdk.testing import small_plan
from pipelines.commit import StateDirectory
from sotto.errors import DrainError

pytestmark = pytest.mark.slow

DEVICES = 12
PATIENCE = 60


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "sotto.cli", *map(str, arguments)]


def taken(state: Path) -> int:
    """Return how many messages are committed in a state directory."""
    try:
        return sum(StateDirectory(state).manifest().lanes.values())
    except DrainError:
        return 0


def wait_for(messages: int, *states: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while sum(map(taken, states)) < messages:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def results(where: str | Path) -> dict[str, list[dict[str, object]]]:
    """Return what does not say how often it was drained."""
    generations = ("revision", "projected_generation", "generation", "lineage")
    return projected(where, without=(*generations, "state"))


def test_two_processes_count_what_one_does(broker, local, topic, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_bytes(small_plan().to_json())
    states = [tmp_path / f"state-{number}" for number in (1, 2)]
    reach = ("--plan", plan, "--broker", local.client_file, "--topic", topic, "--max-reports", 20)

    def share(number: int) -> subprocess.Popen[bytes]:
        where = ("--state", states[number - 1], "--share", f"{number}/2")
        follow = command("aggregate", *reach, *where, "--follow", "--every", "1s")
        return subprocess.Popen(follow, stdout=subprocess.DEVNULL)

    publish(broker, topic, DEVICES)
    running = {number: share(number) for number in (1, 2)}
    try:
        wait_for(1, states[1])
        running[2].send_signal(signal.SIGKILL)
        running[2].wait(PATIENCE)
        publish(broker, topic, DEVICES, first=DEVICES)
        produce(broker, topic, b"no report", partition=3)
        running[2] = share(2)
        wait_for(4 * DEVICES + 1, *states)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait(PATIENCE)
    assert all(taken(state) for state in states)
    database = f"sqlite:///{tmp_path / 'all.db'}"
    given = ("--plan", plan, "--state", states[1], "--state", states[0], "--database", database)
    said = subprocess.run(
        command("combine", *given), check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout
    assert said.startswith("generation ")
    one = drained(broker, topic, tmp_path / "one", max_reports=1000)
    assert (one.tally.counted, one.rejects) == (2 * DEVICES, {"malformed": 1})
    assert results(database) == results(tmp_path / "one")
