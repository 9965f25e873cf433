"""The fault run of the collector: devices post over HTTP, runs take what it has written."""

from __future__ import annotations

import http.client
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.soak.fleet import plan_of
from benchmarks.soak.runs import KILLED, REFUSED, STEPS, Runs, at_instant, at_step, beside
from benchmarks.soak.stage import CHOICES, FaultError, Injection, Stage, wait_until
from deploy.ports import HOST, free_ports
from pipelines.sources.base import BoundedSource
from pipelines.sources.log import EmbeddedLog
from sotto.log.reader import partitions, segments

#: Stores that a collector can write to.
STORES = ("log", "kafka")
#: How long a collector may take to answer after its start, or to end, in seconds.
PATIENCE = 120
#: Nothing is acknowledged for so long, in seconds: then the collector refuses.
_REFUSING = 1.0


class HttpStage(Stage):
    """A stage whose senders post to a collector; the network is the one between them.

    The collector writes to an embedded log, on the disk that can be filled, or to the broker.
    """

    def __init__(self, folder: Path, seed: int, rate: float, store: str) -> None:
        super().__init__(folder, seed, rate, Runs.DISK, advertised=False)
        self.store = store
        self._log = folder / Runs.DISK / "log"
        self._plan = folder / "plan.json"
        self._plan.write_bytes(plan_of().to_json())
        (self._port,) = free_ports(1)
        self._collector: subprocess.Popen[bytes] | None = None

    def __exit__(self, *error: object) -> None:
        if self._collector is not None:
            self._collector.kill()
            self._collector.wait()
        super().__exit__(*error)

    @property
    def destination(self) -> list[str]:
        """The address that senders send to, through the network."""
        return [f"http://{HOST}:{self.proxy.port}"]

    @property
    def source(self) -> BoundedSource:
        return EmbeddedLog(self._log) if self.store == "log" else super().source

    def start_broker(self) -> None:
        """Start the broker, if there is one."""
        if self.store == "kafka":
            self.broker.start()

    def make_topics(self) -> None:
        """Make the topic, if there is a broker, and start the collector."""
        if self.store == "kafka":
            super().make_topics()
        self.proxy.target = self._port
        self.start_collector()

    def start_collector(self) -> None:
        """Start the collector, and return once it answers."""
        command = [sys.executable, "-m", "sotto", "collect", "--plan", str(self._plan)]
        command += ["--port", str(self._port), "--rate", "10000"]
        if self.store == "log":
            command += ["--log", str(self._log)]
        else:
            command += ["--broker", str(self.broker.client_file), "--topic", str(self.topic)]
        with open(self.folder / "collector.log", "ab") as log:
            self._collector = subprocess.Popen(command, stdout=log, stderr=log)
        if not wait_until(self._answers, PATIENCE):
            raise FaultError("the collector does not answer: see collector.log")

    def end_collector(self, number: int) -> None:
        """Send the collector a signal that ends it, which must be running."""
        process = self._collector
        if process is None or process.poll() is not None:
            raise FaultError("the collector has ended by itself: see collector.log")
        process.send_signal(number)
        status = process.wait(PATIENCE)
        if status not in (0, -number):
            raise FaultError(f"the collector ended with {status}: see collector.log")

    def limit_files(self, room: int) -> None:
        """Let the collector's log grow by no more than so many bytes; 0 for any number."""
        assert self._collector is not None
        files = [each.path for name in partitions(self._log) for each in segments(name)]
        limit = max(path.stat().st_size for path in files) + room if room else -1
        limits = (limit, resource.RLIM_INFINITY)
        resource.prlimit(self._collector.pid, resource.RLIMIT_FSIZE, limits)

    def refuses(self) -> bool:
        """Whether nothing is acknowledged for a while."""
        before = self.progress.known()
        time.sleep(_REFUSING)
        return bool((self.progress.known()[: len(before)] == before).all())

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


class Collected(Runs):
    """A collector and runs of what it has written."""

    stage: HttpStage

    def __init__(self, stage: HttpStage) -> None:
        super().__init__(stage)
        away = "disk full" if stage.store == "kafka" else "broker killed"
        self.kinds = {kind: how for kind, how in _KINDS.items() if kind != away}
        at_a_step = {"run killed at a step": STEPS}
        disk = {"disk full": ("full", "file size") if stage.disk.mounted else ("file size",)}
        self.choices = {**CHOICES, **at_a_step, **disk, "collector ended": ("SIGKILL", "SIGTERM")}


def _collector(runs: Collected, fault: Injection) -> bool:
    """End the collector amid a run, and start it again after a while."""
    process = runs.start()
    time.sleep(fault.delay)
    runs.stage.end_collector(signal.Signals[fault.what])
    time.sleep(fault.seconds)
    runs.stage.start_collector()
    runs.end(process, 0)
    return True


def _both(runs: Collected, fault: Injection) -> bool:
    """Kill the collector and a run at one moment."""
    process = runs.start()
    time.sleep(fault.delay)
    runs.stage.end_collector(signal.SIGKILL)
    process.kill()
    runs.end(process, 0, KILLED)
    runs.stage.start_collector()
    return True


def _disk(runs: Collected, fault: Injection) -> bool:
    """Fill the disk below log and state, or the log's file, until the collector refuses."""
    stage = runs.stage
    room = fault.room // 16
    if fault.what == "full":
        stage.disk.leave(room)
    else:
        stage.limit_files(room)
    refused = wait_until(stage.refuses, 60)
    runs.end(runs.start(), 0, REFUSED)
    time.sleep(fault.seconds)
    if fault.what == "full":
        stage.disk.make_room()
    else:
        stage.limit_files(0)
    return refused


#: Kinds of faults: their shares of a run, and how each is brought about.
_KINDS: dict[str, tuple[int, Callable[[Collected, Injection], bool]]] = {
    "collector ended": (24, _collector),
    "collector and run killed": (8, _both),
    "run killed at a step": (14, at_step),
    "run killed at any instant": (10, at_instant),
    "network": (24, beside("network", 0)),
    "sender killed": (8, beside("sender killed", 0)),
    "disk full": (8, _disk),
    "broker killed": (8, beside("broker killed", 0, REFUSED)),
    "repeated and reordered": (4, beside("repeated and reordered", 0)),
}
