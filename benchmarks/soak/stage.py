"""What every fault run plays in: broker, network, topic, the fleet and real devices."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.soak.books import Books
from benchmarks.soak.devices import files_of
from benchmarks.soak.fleet import SECOND, Fleet, plan_of
from benchmarks.soak.proxy import Proxy
from benchmarks.soak.schedule import FaultError
from clientsdk import Broker
from deploy.kafka.broker import LocalBroker
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic

PARTITIONS = 4
#: How many devices the fleet may have at most; each second of events has 128.
CAPACITY = 400_000
#: How long a process that was told to end may take to send what it owes, in seconds.
ENDING = 600


class Stage:
    """Who sends, and what they send through, running.

    Parameters
    ----------
    folder : Path
        Empty, or to be made.
    seed : int
    rate : float
        Messages of the fleet a second.
    """

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.seed = seed
        self.rate = rate
        self.proxy = Proxy()
        self.broker = LocalBroker(folder / "broker", advertised=self.proxy.port)
        self.topic = ReportTopic("soak", 1, PARTITIONS)
        now = time.time_ns() // 1_000_000 // SECOND * SECOND
        self.fleet = Fleet(plan_of(), now - CAPACITY // 100 * SECOND, seed)
        self.books = Books(folder / "books", CAPACITY)
        self._senders: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start_broker()
        self.make_topics()
        for name in ("fleet", "devices"):
            self.start_sender(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._senders.values():
            process.kill()
            process.wait()
        self.proxy.close()
        self.broker.kill()

    def make_topics(self) -> None:
        """Make the topics of a run."""
        with connected(Broker.from_file(self.broker.client_file)) as topics:
            topics.create(self.topic, replicas=1, retention=self.fleet.plan.horizon)

    def start_broker(self) -> None:
        """Start the broker, and let the network lead to it."""
        self.broker.start()
        self.proxy.target = self.broker.port

    def start_sender(self, name: str) -> None:
        """Start the ``fleet`` or the ``devices``."""
        where = [str(self.broker.client_file), str(self.topic)]
        if name == "fleet":
            where += [str(self.folder / "books"), "--capacity", str(CAPACITY)]
            where += ["--base", str(self.fleet.base), "--seed", str(self.seed)]
            where += ["--rate", str(self.rate)]
        else:
            where.append(str(self.folder))
        module = "benchmarks.soak.sender" if name == "fleet" else "benchmarks.soak.devices"
        with open(self.folder / f"{name}.log", "ab") as log:
            self._senders[name] = subprocess.Popen(
                [sys.executable, "-m", module, *where], stdout=log, stderr=log
            )

    def kill_sender(self, name: str) -> None:
        """Kill it; it must have been running."""
        process = self._senders[name]
        if process.poll() is not None:
            raise FaultError(f"the {name} ended by themselves: see {name}.log")
        process.kill()
        process.wait()

    def repeat(self) -> None:
        """Let the fleet send much of what was acknowledged again."""
        self._senders["fleet"].send_signal(signal.SIGUSR1)

    def finish_senders(self) -> None:
        """Let them send all that they owe, and end."""
        for process in self._senders.values():
            process.terminate()
        for name, process in self._senders.items():
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired as error:
                raise FaultError(f"the {name} still owe reports after {ENDING} s") from error
            if process.returncode:
                raise FaultError(f"the {name} ended with {process.returncode}: see {name}.log")
        self._senders.clear()

    def device_files(self) -> list[Path]:
        """Return the files of the real devices."""
        return files_of(self.folder)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for something, but no longer than that; return whether it came about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
