"""Play some devices that report to the deployment in containers: ``python -m examples.compose``.

Every device draws its values by itself, records each once, and sends its reports when they are
due: the first ones at once, the sharper ones a minute later. Each device has a connection of its
own, as devices have, which takes a tenth of a second.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clientsdk import NO_LIFETIME_BOUND, Broker, Client, CompiledPlan, KafkaPublisher, Publisher
from sotto.plan.compile import load_plan

PLAN = Path(__file__).with_name("plan.yaml")
#: A file that `make compose-up` makes: with it reports can be sent, and nothing can be read.
BROKER = Path("build/compose/keys/devices/client.json")
#: True shares, for whoever compares the estimates with them.
THEMES = {"light": 0.55, "dark": 0.35, "high-contrast": 0.1}
SATISFIED = {"yes": 0.6, "no": 0.3, None: 0.1}
_TICK_MS = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.compose", description=__doc__)
    parser.add_argument("--broker", type=Path, default=BROKER, help="how to reach it (JSON)")
    parser.add_argument("--topic", default="answers-e1-p4", help="default: answers-e1-p4")
    parser.add_argument("--devices", type=int, default=300, help="default: 300")
    args = parser.parse_args(arguments)
    publisher = KafkaPublisher(Broker.from_file(args.broker), args.topic)
    try:
        sent = send(load_plan(PLAN).compile(), publisher, args.devices)
    finally:
        publisher.close()
    print(f"{args.devices} devices sent {sent} reports")
    return 0


def send(
    plan: CompiledPlan,
    publisher: Publisher,
    number: int,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Let devices record and send until nothing is left; return how many reports were sent."""
    chance = random.Random()
    devices = [_device(plan, publisher, clock, chance) for _ in range(number)]
    sent = 0
    try:
        while dues := [due for device in devices if (due := device.next_due()) is not None]:
            wait(max(0.0, (min(dues) + _TICK_MS) / 1000 - clock()))
            results = [device.flush() for device in devices]
            sent += sum(result.sent for result in results)
            for result in results:
                if result.error is not None:
                    raise result.error
    finally:
        for device in devices:
            device.close()
    return sent


class _Device(Client):
    """A device that is nobody's: only variables of Sotto's own switch it off."""

    _simulated = True


def _device(
    plan: CompiledPlan, publisher: Publisher, clock: Callable[[], float], chance: random.Random
) -> Client:
    # Each run's devices are new ones.
    client = _Device(
        plan, state=NO_LIFETIME_BOUND, publisher=publisher, clock=clock, background=False
    )
    client.give_consent()
    client.record("theme", chance.choices([*THEMES], [*THEMES.values()])[0])
    client.record("start_time", chance.gammavariate(2, 1))
    client.record("satisfied", chance.choices([*SATISFIED], [*SATISFIED.values()])[0])
    return client


if __name__ == "__main__":
    raise SystemExit(main())
