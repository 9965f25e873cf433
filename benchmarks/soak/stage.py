"""The stage of every fault run: broker, network, topic, disk, the fleet and real devices."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.soak.fleet import SECOND, Fleet, Progress, plan_of
from benchmarks.soak.proxy import Network, Proxy
from benchmarks.soak.sender import SIGNALS, files_of
from clientsdk import Broker
from deploy.kafka.broker import LocalBroker
from pipelines.sources.base import BoundedSource
from pipelines.sources.kafka import KafkaTopics
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic

PARTITIONS = 4
#: How many devices the fleet may have at most; each second of events has 128.
CAPACITY = 400_000
#: How long a process that is to end may take to send what is left, in seconds.
ENDING = 600
_PAGE, _ROOM = 4096, 4 << 30


class FaultError(Exception):
    """Something did what it must not do, whatever happens to it."""


class Injection(NamedTuple):
    """A fault that is to be."""

    kind: str
    #: Which step, network or process; empty where there is no choice.
    what: str = ""
    #: The occurrence of a step, from 1, at which the fault happens.
    occurrence: int = 1
    #: When, after a run was started, and how long.
    delay: float = 0.0
    seconds: float = 0.0
    #: Bytes that are left on a disk.
    room: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kind} ({self.what} {self.occurrence}, after {self.delay:.2f} s, "
            f"for {self.seconds:.2f} s, {self.room} bytes)"
        )


class Disk:
    """A small file system in memory; mounting one takes root's rights."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        #: Whether there is one: without, the folder is an ordinary one, and cannot be filled.
        self.mounted = self._mount("-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs")
        if not self.mounted:
            print("no disk that can be filled", flush=True)

    def leave(self, free: int) -> None:
        """Let no more than so many bytes be free."""
        size = shutil.disk_usage(self._folder).used + free + _PAGE - 1
        self._mount("-o", f"remount,size={size // _PAGE * _PAGE}")

    def make_room(self) -> None:
        """Let there be plenty."""
        self._mount("-o", f"remount,size={_ROOM}")

    def close(self) -> None:
        """Unmount it; what was on it is gone."""
        if self.mounted:
            subprocess.run(["umount", self._folder], check=True)

    def _mount(self, *options: str) -> bool:
        command = ["mount", *options, str(self._folder)]
        return not subprocess.run(command, capture_output=True, check=False).returncode


class Stage:
    """Running senders, with so many messages of the fleet a second, and what they send through.

    ``disk`` is the folder in its own that can be filled; ``advertised``: whether clients of the
    broker are told to come through the network.
    """

    def __init__(
        self, folder: Path, seed: int, rate: float, disk: str, advertised: bool = True
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seed, self.rate = folder, seed, rate
        self.disk = Disk(folder / disk)
        self.proxy = Proxy()
        port = self.proxy.port if advertised else 0
        self.broker = LocalBroker(folder / "broker", advertised=port)
        self.topic = ReportTopic("soak", 1, PARTITIONS)
        now = time.time_ns() // 1_000_000 // SECOND * SECOND
        self.fleet = Fleet(plan_of(), now - CAPACITY // 100 * SECOND, seed)
        self.progress = Progress(folder / "progress", CAPACITY)
        self._senders: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start_broker()
        self.make_topics()
        for name in ("fleet", "devices"):
            self.start_sender(name)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._senders.values():
            process.kill()
            process.wait()
        self.proxy.close()
        self.broker.kill()
        self.disk.close()

    def make_topics(self) -> None:
        """Make the topics of a run."""
        with connected(Broker.from_file(self.broker.client_file)) as topics:
            topics.create(self.topic, replicas=1, retention=self.fleet.plan.horizon)

    def start_broker(self) -> None:
        """Start the broker, and let the network lead to it."""
        self.broker.start()
        self.proxy.target = self.broker.port

    @property
    def destination(self) -> list[str]:
        """The destination of senders, as arguments of theirs."""
        return [str(self.broker.client_file), "--topic", str(self.topic)]

    @property
    def source(self) -> BoundedSource:
        """The reports that runs aggregate."""
        return KafkaTopics(Broker.from_file(self.broker.client_file), [self.topic])

    def start_sender(self, name: str) -> None:
        """Start the ``fleet`` or the ``devices``."""
        command = [sys.executable, "-m", "benchmarks.soak.sender", name, *self.destination]
        if name == "fleet":
            command += [str(self.folder / "progress"), "--capacity", str(CAPACITY)]
            command += ["--base", str(self.fleet.base), "--seed", str(self.seed)]
            command += ["--rate", str(self.rate)]
        else:
            command.append(str(self.folder))
        # Signals wait until the process has its handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            with open(self.folder / f"{name}.log", "ab") as log:
                self._senders[name] = subprocess.Popen(command, stdout=log, stderr=log)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def finish_senders(self) -> None:
        """Let them send all that is left, and end."""
        for process in self._senders.values():
            process.terminate()
        for name, process in self._senders.items():
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired as error:
                raise FaultError(f"the {name} still have reports after {ENDING} s") from error
            if process.returncode:
                raise FaultError(f"the {name} ended with {process.returncode}: see {name}.log")
        self._senders.clear()

    def device_files(self) -> list[Path]:
        """Return the files of the real devices."""
        return files_of(self.folder)

    def kill_broker(self, fault: Injection) -> bool:
        """Kill the broker, and start it again after a while."""
        self.broker.kill()
        time.sleep(fault.seconds)
        self.start_broker()
        return True

    def kill_sender(self, fault: Injection) -> bool:
        """Kill the fleet or the devices, which must have been running, and start them again."""
        process = self._senders[fault.what]
        if process.poll() is not None:
            raise FaultError(f"the {fault.what} ended by themselves: see {fault.what}.log")
        process.kill()
        process.wait()
        self.start_sender(fault.what)
        return True

    def cut_network(self, fault: Injection) -> bool:
        """Change the network for a while."""
        self.proxy.become(Network(fault.what))
        time.sleep(fault.seconds)
        self.proxy.become(Network.WHOLE)
        return True

    def repeat(self, fault: Injection) -> bool:
        """Let the fleet send much of what was acknowledged again."""
        before = self.progress.count("repeated")
        self._senders["fleet"].send_signal(signal.SIGUSR1)
        return wait_until(lambda: self.progress.count("repeated") > before + 200, 30)


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Look for something every ``pause`` seconds, so long at most; return whether it came about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


#: Faults of the stage alone, by kind, and what each can choose from.
STAGE_FAULTS: Mapping[str, Callable[[Stage, Injection], bool]] = {
    "broker killed": Stage.kill_broker,
    "sender killed": Stage.kill_sender,
    "network": Stage.cut_network,
    "repeated and reordered": Stage.repeat,
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "sender killed": ("fleet", "devices"),
    "network": tuple(each.value for each in Network if each is not Network.WHOLE),
}
