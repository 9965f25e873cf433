"""The process of the kill run: it records, and sends, until it is killed."""

from __future__ import annotations

import functools
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

from clientsdk import Client, Outcome, Settings
from sotto.plan.compile import load_plan
from sotto.plan.compiled import CompiledPlan

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
#: The beginning of a budget period of a week.
START = 2900 * WEEK
#: Milliseconds that pass on the device's clock with each value that is accepted: however slow the
#: machine is, a chain is sent before it is too late.
STEP = HOUR // 2

LENGTH = struct.Struct("<I")


def clock_of(folder: Path) -> int:
    """Return the time on a device's clock, the same for all its processes."""
    return START + STEP * acknowledged(folder)


def acknowledged(folder: Path) -> int:
    """Return how many values a device's processes have noted as accepted."""
    acks = folder / "acks"
    return acks.stat().st_size if acks.exists() else 0


@functools.cache
def plan() -> CompiledPlan:
    """Return a plan with every kind of repetition."""
    return load_plan(Path(__file__).with_name("plan.yaml")).compile()


class FilePublisher:
    """Appends each message to one file of all processes, in one write."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def publish(self, shard: int, message: bytes) -> None:
        """Append a message, with its length and the process that sends it."""
        os.write(self._descriptor, LENGTH.pack(len(message)) + LENGTH.pack(os.getpid()) + message)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def open_device(folder: Path, clock: Callable[[], float] | None = None) -> Client:
    """Return a client of the device in a folder, whose messages go to one file of all."""
    return Client(
        plan(),
        state=folder / "device.db",
        publisher=FilePublisher(folder / "published"),
        clock=clock or (lambda: clock_of(folder) / 1000),
        background=False,
        settings=Settings(in_ci=True),
    )


def live(folder: Path, seed: int) -> None:
    """Record and flush until killed; a byte in the file ``acks`` for each value accepted."""
    parent = os.getppid()
    rng = random.Random(seed)
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    client = open_device(folder)
    client.give_consent()
    while os.getppid() == parent:
        for _ in range(rng.randrange(1, 6)):
            if client.record("colour", rng.choice("abc")) is Outcome.ACCEPTED:
                os.write(acks, b"a")
        for name in ("kept", "model", "app"):
            client.record(name, rng.choice("abc"))
        if rng.random() < 0.5 and client.flush().lapsed:
            raise RuntimeError("a chain lapsed")


def settle(folder: Path) -> int:
    """Send all that is left, day by day; return how many chains lapsed."""
    now = [clock_of(folder)]
    lapsed = 0
    with open_device(folder, lambda: now[0] / 1000) as client:
        for _ in range(60):
            result = client.flush()
            if result.error is not None:
                raise result.error
            lapsed += result.lapsed
            if client.next_due() is None:
                break
            now[0] += DAY
    return lapsed
