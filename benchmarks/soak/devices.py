"""Real devices: clients of the SDK with files of their own, in a process that may be killed.

``SIGTERM`` makes them record nothing more, send all that is still to be released, and end.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from pathlib import Path

from benchmarks.soak.fleet import COLOUR, plan_of
from benchmarks.soak.sender import PATIENCE
from clientsdk import Broker, Client, KafkaPublisher

DEVICES = 24
#: Recordings and flushes of all devices a second.
RATE = 25.0
_COLOURS = ("red", "green", "blue", "mauve")


def files_of(folder: Path) -> list[Path]:
    """Return the devices' files."""
    return [folder / f"device-{number}.db" for number in range(DEVICES)]


def main() -> None:
    """Run the process; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client_file", type=Path)
    parser.add_argument("topic")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    ending = False

    def asked(number: int, frame: object) -> None:
        nonlocal ending
        ending = True

    signal.signal(signal.SIGTERM, asked)
    plan = plan_of()
    broker = Broker.from_file(args.client_file)
    publishers = [KafkaPublisher(broker, args.topic, timeout=PATIENCE) for _ in range(DEVICES)]
    clients = [
        Client(plan, state=path, publisher=publisher, background=False)
        for path, publisher in zip(files_of(args.folder), publishers, strict=True)
    ]
    for client in clients:
        client.give_consent()
    while not ending:
        client = random.choice(clients)
        client.record(COLOUR, random.choice(_COLOURS))
        client.flush()
        time.sleep(1 / RATE)
    while any(client.next_due() is not None for client in clients):
        for client in clients:
            client.flush()
        time.sleep(0.2)
    for client in clients:
        client.close()
    for publisher in publishers:
        publisher.close()


if __name__ == "__main__":
    main()
