"""The fleet's process: sends every device's levels, out of order and some of them again.

It may be killed at any moment; the next one goes on from the books. ``SIGUSR1`` makes it repeat
much that was acknowledged long ago, ``SIGTERM`` makes it send what is owed and end.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from pathlib import Path

from benchmarks.soak.books import Books
from benchmarks.soak.fleet import LEVELS, Fleet, plan_of
from benchmarks.soak.fleetproducer import FleetProducer
from clientsdk import Broker
from sotto.errors import PublishError

#: Devices that begin at a time, and messages that are handed over before they are waited for.
BATCH = 50
#: Messages repeated at once when asked to.
STORM = 2000
#: How long the broker may take to acknowledge, in seconds.
PATIENCE = 3.0
#: What is sent of a device's values: mostly all levels, sometimes not the newest, or not all.
_WANTED = (0b111, 0b111, 0b111, 0b111, 0b011, 0b101, 0b001, 0b100)
#: Of what a killed process had not been told was acknowledged, this share is never sent again.
_GIVEN_UP = 0.1


class Sending:
    """One life of the fleet's process.

    Parameters
    ----------
    fleet : Fleet
    books : Books
    publisher : FleetProducer
    rate : float
        Messages a second.
    """

    def __init__(self, fleet: Fleet, books: Books, publisher: FleetProducer, rate: float) -> None:
        self._fleet = fleet
        self._books = books
        self._publisher = publisher
        self._rate = rate
        self._random = random.Random()
        self._pending = self._owed()
        self.storm = False
        self.ending = False

    def run(self) -> None:
        """Send until told to end, and then until nothing is owed."""
        due = time.monotonic()
        while not self.ending or self._pending:
            if not self.ending and len(self._pending) < 20 * BATCH:
                self._begin()
            sent = self._cycle()
            due = max(due + sent / self._rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))

    def _owed(self) -> list[tuple[int, int]]:
        """Return what earlier lives have begun and not finished, but for what is given up."""
        books, owed = self._books, []
        begun = books.number("begun")
        doubtful = books.sent[:begun] & ~books.acknowledged[:begun] & ~books.given_up[:begun]
        for device in doubtful.nonzero()[0].tolist():
            if self._random.random() < _GIVEN_UP:
                books.given_up[device] |= doubtful[device]
        for device in range(begun):
            open_levels = self._wanted(device) & ~int(
                books.acknowledged[device] | books.given_up[device]
            )
            owed += [(device, level) for level in range(LEVELS) if open_levels >> level & 1]
        return owed

    def _wanted(self, device: int) -> int:
        return _WANTED[self._fleet.pseudonym(device)[0] % len(_WANTED)]

    def _begin(self) -> None:
        begun = self._books.number("begun")
        for device in range(begun, min(begun + BATCH, self._books.capacity)):
            wanted = self._wanted(device)
            self._pending += [(device, level) for level in range(LEVELS) if wanted >> level & 1]
            self._books.add("begun", 1)

    def _cycle(self) -> int:
        """Send some of what is pending, in random order; return how many messages."""
        self._random.shuffle(self._pending)
        share = self._pending[: 2 * BATCH]
        again = self._again(STORM if self.storm else len(share) // 20)
        self.storm = False
        messages = share + again
        self._random.shuffle(messages)
        try:
            for device, level in messages:
                self._note(device, level)
                self._publisher.publish(*self._fleet.message(device, level))
            self._publisher.sync()
        except PublishError:
            return len(messages)
        for device, level in messages:
            self._books.acknowledged[device] |= 1 << level
        self._books.add("repeated", len(again))
        del self._pending[: len(share)]
        return len(messages)

    def _note(self, device: int, level: int) -> None:
        books, bit = self._books, 1 << level
        books.add("messages", 1)
        if not int(books.sent[device]) & bit and int(books.sent[device]) > bit:
            books.add("reordered", 1)
        books.sent[device] |= bit

    def _again(self, number: int) -> list[tuple[int, int]]:
        """Return messages that were acknowledged before, from anywhere in the run."""
        begun, found = self._books.number("begun"), []
        for _ in range(number):
            device, level = self._random.randrange(begun), self._random.randrange(LEVELS)
            if int(self._books.acknowledged[device]) >> level & 1:
                found.append((device, level))
        return found


def main() -> None:
    """Run the process; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client_file", type=Path)
    parser.add_argument("topic")
    parser.add_argument("books", type=Path)
    parser.add_argument("--capacity", type=int, required=True)
    parser.add_argument("--base", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    args = parser.parse_args()
    fleet = Fleet(plan_of(), args.base, args.seed)
    broker = Broker.from_file(args.client_file)
    publisher = FleetProducer(broker, args.topic, PATIENCE)
    sending = Sending(fleet, Books(args.books, args.capacity), publisher, args.rate)

    def asked(number: int, frame: object) -> None:
        sending.storm = sending.storm or number == signal.SIGUSR1
        sending.ending = sending.ending or number == signal.SIGTERM

    signal.signal(signal.SIGUSR1, asked)
    signal.signal(signal.SIGTERM, asked)
    sending.run()
    publisher.close()


if __name__ == "__main__":
    main()
