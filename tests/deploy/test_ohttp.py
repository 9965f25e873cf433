"""Oblivious HTTP from devices to estimates: relay, gateway in Go, collector, with faults."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local_server import Answer
from log_records import records_of
from oblivious import Relay, served
from plan_texts import plan_head

from clientsdk import fetch_plan
from clientsdk.publishers.ohttp import KeyConfiguration, ObliviousPublisher
from clientsdk.testing import FakeClock, SeededClient
from deploy.ohttp import service
from deploy.ports import free_ports
from sotto.clocks import now_ms
from sotto.plan.compile import load_plan
from sotto.wire.format import pseudonym_of

pytestmark = pytest.mark.slow

ORIGIN = "telemetry.example"
HOUR = 3_600_000
PLAN = (
    plan_head("trial", (12, 12))
    + """\
  colour:
    {type: category, domain: [red, blue], outside: other, window: 364d, repeat: {once: first},
     ladder: [{epsilon: 4}]}
"""
)
DEVICES = 60


class Collector:
    """``sotto collect`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self.said = folder / "collector.log"
        (folder / "plan.yaml").write_text(PLAN, encoding="ascii")
        self.key = self.sotto("collect", "--keys", "keys.json", "--new-key", "app").strip()

    def sotto(self, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "sotto", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(service.ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def start(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "sotto", "collect"]
        command += ["--plan", "plan.yaml", "--log", "log", "--keys", "keys.json"]
        with open(self.said, "ab") as said:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(service.ROOT)},
                stdout=said,
                stderr=said,
            )
        served(f"{self.url}/healthz")

    def estimates(self) -> dict[str, dict[str, str]]:
        """Rows by item."""
        self.sotto("aggregate", "--plan", "plan.yaml", "--log", "log", "--state", "state")
        table = self.sotto("estimates", "--state", "state", "--format", "csv").splitlines()
        return {row["item"]: row for row in csv.DictReader(table)}

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(600)
            self.process = None


@pytest.fixture
def collector(tmp_path):
    collector = Collector(tmp_path)
    yield collector
    collector.stop()


@pytest.fixture
def afterwards():
    """A stack of resources that are closed after a test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.real_randomness
def test_from_devices_to_estimates_with_faults(tmp_path, gateway, collector, afterwards):
    """Nothing is lost or counted twice, and no party sees more than its part."""
    seeds = {1: os.urandom(32), 2: os.urandom(32)}
    gateway.folder.mkdir()
    gateway.write_keys({1: seeds[1]})
    gateway.start(ORIGIN, collector.url)
    pinned = gateway.public_keys()

    relay = afterwards.enter_context(Relay(f"127.0.0.1:{gateway.port}"))
    afterwards.callback(relay.shutdown)

    def publisher(keys: bytes, key: str = collector.key) -> ObliviousPublisher:
        made = ObliviousPublisher(relay.url, f"https://{ORIGIN}", keys, key=key, timeout=300)
        afterwards.callback(made.close)
        return made

    compiled = load_plan(tmp_path / "plan.yaml").compiled
    clock = FakeClock(now_ms() - 6 * HOUR)
    shipped = publisher(pinned)

    class Device(SeededClient):
        """Its publisher changes with an update of the app."""

        def __init__(self, number: int) -> None:
            self.relayed = _Changing(shipped)
            super().__init__(
                compiled, seed=number, clock=clock, publisher=self.relayed, leaks_values=True
            )
            assert self.record("colour", "red" if number % 3 else "blue")

    devices = [Device(number) for number in range(DEVICES)]
    clock.advance(hours=6)
    turn = iter(devices)

    def fails(device: Device, reason: str) -> None:
        flushed = device.flush()
        assert flushed.sent == 0
        assert reason in str(flushed.error)

    # The collector is away: the gateway says so, encrypted.
    first = next(turn)
    fails(first, "the collector answered with status 502")
    collector.start()
    first.relayed.now = publisher(pinned, "nobodys")
    fails(first, "the collector answered with status 401")
    first.relayed.now = shipped
    assert first.flush().sent == 1
    # The gateway is gone.
    second = next(turn)
    gateway.stop()
    fails(second, "the relay or gateway answered with status 502")
    gateway.start(ORIGIN, collector.url, gateway.port)
    assert second.flush().sent == 1
    # The answer is lost after the message was taken: it comes again, and counts once.
    third = next(turn)
    relay.given = lambda body: Answer(504, body=relay.forward(body).body[:0])
    fails(third, "the relay or gateway answered with status 504")
    relay.given = relay.forward
    assert third.flush().sent == 1
    # Two keys for a while, then the new one alone: apps that were not updated wait.
    gateway.stop()
    gateway.write_keys({2: seeds[2], 1: seeds[1]})
    gateway.start(ORIGIN, collector.url, gateway.port)
    both = gateway.public_keys()
    assert KeyConfiguration.parse(both).key_id == 2
    fourth, fifth = next(turn), next(turn)
    fifth.relayed.now = publisher(both)
    assert fourth.flush().sent == fifth.flush().sent == 1
    gateway.stop()
    gateway.write_keys({2: seeds[2]})
    gateway.start(ORIGIN, collector.url, gateway.port)
    assert gateway.public_keys() != pinned
    sixth = next(turn)
    fails(sixth, "status 400; does the app have its current keys?")
    updated = publisher(gateway.public_keys())
    for device in (sixth, *turn):
        device.relayed.now = updated
        assert device.flush().sent == 1

    fetched = fetch_plan(updated, compiled.collector, expect=compiled.fingerprint_hex, timeout=300)
    assert fetched == compiled

    rows = collector.estimates()
    assert {row["reports"] for row in rows.values()} == {str(DEVICES)}, rows
    # every draw: the devices' draws are seeded.
    assert float(rows["red"]["value"]) > float(rows["blue"]["value"]) > 0.2, rows

    stored = [record.body for record in records_of(collector.folder / "log")]
    assert len(stored) == DEVICES + 1
    pseudonyms = {pseudonym_of(message) for message in stored}
    assert len(pseudonyms) == DEVICES
    seen = b"".join(passed.body + repr(passed.headers).encode() for passed in relay.requests)
    seen += b"".join(answer.body for answer in relay.answers)
    secrets = [*pseudonyms, compiled.fingerprint, collector.key.encode(), ORIGIN.encode()]
    assert not any(secret in seen for secret in secrets)
    assert len({len(passed.body) for passed in relay.requests}) == 1
    # The last answer has the plan.
    taken = [answer.body for answer in relay.answers[:-1] if answer.status == 200]
    assert {len(answer) for answer in taken} == {512 + 32}
    assert gateway.log_file.read_bytes() == b""
    assert "127.0.0.1" not in collector.said.read_text().replace(collector.url, "")


class _Changing:
    """A publisher that can be replaced."""

    def __init__(self, now: ObliviousPublisher) -> None:
        self.now = now

    def publish(self, shard: int, message: bytes) -> None:
        self.now.publish(shard, message)

    def close(self) -> None:
        self.now.close()
