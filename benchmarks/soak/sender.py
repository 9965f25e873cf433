"""Processes that send, and may be killed at any moment; the next one goes on.

``fleet`` sends every device's levels, out of order and some of them again. ``SIGUSR1`` makes it
repeat much that was acknowledged long ago. ``devices`` are real ones: clients of the SDK with files
of their own. ``SIGTERM`` makes either send what is still to be sent, and end.
"""

from __future__ import annotations

import argparse
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.kafka import producer
from benchmarks.soak.fleet import COLOUR, LEVELS, Fleet, Progress, plan_of
from clientsdk import Broker, Client, KafkaPublisher, Publisher, Settings
from clientsdk.publishers.http import HttpPublisher
from sotto.errors import PublishError
from sotto.kafka.topics import ReportTopic

#: Devices that begin at a time; twice as many messages are handed over before they are waited for.
BATCH = 50
#: Messages repeated at once when asked to.
STORM = 2000
#: How long the broker may take to acknowledge, in seconds.
PATIENCE = 3.0
#: Levels that are sent of a device's values: mostly all, sometimes not the newest, or not all.
_WANTED = (0b111, 0b111, 0b111, 0b111, 0b011, 0b101, 0b001, 0b100)
#: This share of what a killed process did not know to be acknowledged is never sent again.
_GIVEN_UP = 0.1

#: Signals that a sender handles; whoever starts it blocks them until it has its handlers.
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

DEVICES = 24
#: Recordings and flushes of all real devices a second.
_RATE = 25.0
_COLOURS = ("red", "green", "blue", "mauve")

#: Requests of the fleet that a collector has at one time.
_REQUESTS = 16

#: Sends messages, each with its shard, and returns for each whether it was acknowledged.
Delivery = Callable[[Sequence[tuple[int, bytes]]], list[bool]]


def files_of(folder: Path) -> list[Path]:
    """Return the real devices' files."""
    return [folder / f"device-{number}.db" for number in range(DEVICES)]


def delivery_to_kafka(broker: Broker, topic: ReportTopic) -> Delivery:
    """Return a delivery with one producer for the whole fleet.

    A device's publisher has a connection for each pseudonym, which thousands of devices in one
    process cannot have at hundreds of messages a second.
    """
    settings = {"linger.ms": 5, "message.timeout.ms": int(1000 * PATIENCE)}
    made = producer(broker, **settings)

    def deliver(messages: Sequence[tuple[int, bytes]]) -> list[bool]:
        failed: list[object] = []

        def delivered(error: object, message: object) -> None:
            if error is not None:
                failed.append(error)

        for shard, message in messages:
            partition = topic.partition(shard)
            made.produce(str(topic), message, partition=partition, on_delivery=delivered)
        left = made.flush(2 * PATIENCE)
        if left:
            made.purge()
            made.flush(PATIENCE)
        return [not (failed or left)] * len(messages)

    return deliver


def delivery_to_collector(url: str) -> Delivery:
    """Return a delivery by devices' own publishers, one a thread."""
    mine = threading.local()

    def publish(message: tuple[int, bytes]) -> bool:
        try:
            mine.publisher.publish(*message)
        except PublishError:
            return False
        return True

    def begin() -> None:
        mine.publisher = HttpPublisher(url, timeout=PATIENCE)

    threads = ThreadPoolExecutor(_REQUESTS, initializer=begin)
    return lambda messages: list(threads.map(publish, messages))


class FleetSender:
    """One life of the fleet's process."""

    def __init__(self, fleet: Fleet, progress: Progress, deliver: Delivery, rate: float) -> None:
        self._fleet, self._progress = fleet, progress
        self._deliver, self._rate = deliver, rate
        self._random = random.Random()
        self._pending = self._left_over()
        self.storm = False
        self.ending = False

    def run(self) -> None:
        """Send until it is to end, and then until nothing is left."""
        due = time.monotonic()
        while not self.ending or self._pending:
            if not self.ending and len(self._pending) < 20 * BATCH:
                self._begin()
            sent = self._cycle()
            due = max(due + sent / self._rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))

    def _left_over(self) -> list[tuple[int, int]]:
        """Return what earlier lives have begun and not finished, but for what is given up."""
        progress, left = self._progress, []
        begun = progress.count("begun")
        known = progress.acknowledged[:begun] | progress.given_up[:begun]
        for device in (progress.sent[:begun] & ~known).nonzero()[0].tolist():
            if self._random.random() < _GIVEN_UP:
                progress.given_up[device] |= progress.sent[device] & ~progress.acknowledged[device]
        for device in range(begun):
            closed = int(progress.acknowledged[device] | progress.given_up[device])
            left += _levels(device, self._wanted(device) & ~closed)
        return left

    def _wanted(self, device: int) -> int:
        return _WANTED[self._fleet.pseudonym(device)[0] % len(_WANTED)]

    def _begin(self) -> None:
        begun = self._progress.count("begun")
        for device in range(begun, min(begun + BATCH, self._progress.capacity)):
            self._pending += _levels(device, self._wanted(device))
            self._progress.add("begun", 1)

    def _cycle(self) -> int:
        """Send some of what is pending, in random order; return how many messages."""
        self._random.shuffle(self._pending)
        share = self._pending[: 2 * BATCH]
        again = self._again(STORM if self.storm else len(share) // 20)
        self.storm = False
        messages = share + again
        self._random.shuffle(messages)
        for device, level in messages:
            self._note(device, level)
        done = self._deliver([self._fleet.message(*each) for each in messages])
        for (device, level), acknowledged in zip(messages, done, strict=True):
            self._progress.acknowledged[device] |= acknowledged << level
        if any(done):
            self._progress.add("repeated", len(again))
        self._pending = [each for each in self._pending if not self._is_acknowledged(*each)]
        return len(messages)

    def _note(self, device: int, level: int) -> None:
        progress, bit = self._progress, 1 << level
        progress.add("messages", 1)
        if not int(progress.sent[device]) & bit and int(progress.sent[device]) > bit:
            progress.add("reordered", 1)
        progress.sent[device] |= bit

    def _again(self, number: int) -> list[tuple[int, int]]:
        """Return messages that were acknowledged before, from anywhere in the run."""
        begun, found = self._progress.count("begun"), []
        for _ in range(number):
            device, level = self._random.randrange(begun), self._random.randrange(LEVELS)
            if self._is_acknowledged(device, level):
                found.append((device, level))
        return found

    def _is_acknowledged(self, device: int, level: int) -> bool:
        return bool(int(self._progress.acknowledged[device]) >> level & 1)


def _levels(device: int, bits: int) -> list[tuple[int, int]]:
    return [(device, level) for level in range(LEVELS) if bits >> level & 1]


def fleet(args: argparse.Namespace) -> None:
    """Be the fleet."""
    devices = Fleet(plan_of(), args.base, args.seed)
    progress = Progress(args.path, args.capacity)
    if args.topic is None:
        deliver = delivery_to_collector(args.where)
    else:
        deliver = delivery_to_kafka(Broker.from_file(args.where), args.topic)
    sender = FleetSender(devices, progress, deliver, args.rate)

    def received(number: int, frame: object) -> None:
        sender.storm = sender.storm or number == signal.SIGUSR1
        sender.ending = sender.ending or number == signal.SIGTERM

    signal.signal(signal.SIGUSR1, received)
    signal.signal(signal.SIGTERM, received)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    sender.run()


def devices(args: argparse.Namespace) -> None:
    """Be the real devices, whose files are in a folder."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ending.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    plan, clients = plan_of(), []
    publishers = [_publisher(args) for _ in range(DEVICES)]
    for path, publisher in zip(files_of(args.path), publishers, strict=True):
        settings = Settings(background=False, in_ci=True)
        clients.append(Client(plan, state=path, publisher=publisher, settings=settings))
        clients[-1].give_consent()
    while not ending:
        client = random.choice(clients)
        client.record(COLOUR, random.choice(_COLOURS))
        client.flush()
        time.sleep(1 / _RATE)
    while any(client.next_due() is not None for client in clients):
        for client in clients:
            client.flush()
        time.sleep(0.2)
    for client in clients:
        client.close()
    for publisher in publishers:
        publisher.close()


def _publisher(args: argparse.Namespace) -> Publisher:
    if args.topic is None:
        return HttpPublisher(args.where, timeout=PATIENCE)
    return KafkaPublisher(Broker.from_file(args.where), str(args.topic), timeout=PATIENCE)


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("fleet", "devices"))
    parser.add_argument("where", help="a broker's client file, or a collector's URL")
    parser.add_argument("path", type=Path, help="of the fleet's progress, or the devices' folder")
    parser.add_argument("--topic", type=ReportTopic.parse, help="of the broker")
    parser.add_argument("--capacity", type=int)
    parser.add_argument("--base", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--rate", type=float)
    args = parser.parse_args()
    run = fleet if args.kind == "fleet" else devices
    run(args)


if __name__ == "__main__":
    main()
