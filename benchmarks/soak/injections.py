"""The faults of a run, drawn from a seed, and how each is brought about."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.soak.drains import KILLED, REFUSED, STEPS, Drain
from benchmarks.soak.proxy import Network
from benchmarks.soak.stage import wait_until
from benchmarks.soak.world import World

#: Reports that a drain takes at most when the consumer is far behind.
_FEW = 1_000


class Injection(NamedTuple):
    """A fault that is to be.

    Attributes
    ----------
    kind : str
        One of ``KINDS``.
    what : str
        Which step, network or process.
    occurrence : int
        Of a step.
    delay, seconds : float
        When, after a drain was started, and how long.
    room : int
        Bytes that are left on a disk.
    """

    kind: str
    what: str
    occurrence: int
    delay: float
    seconds: float
    room: int

    def __str__(self) -> str:
        return (
            f"{self.kind} ({self.what} {self.occurrence}, after {self.delay:.2f} s, "
            f"for {self.seconds:.2f} s, {self.room} bytes)"
        )


class FaultError(Exception):
    """Something did what it must not do under a fault."""


def _at_step(world: World, fault: Injection) -> bool:
    status = world.drain(fault.what, fault.occurrence).status()
    return _expect(status, 0, KILLED) == KILLED


def _at_instant(world: World, fault: Injection) -> bool:
    drain = world.drain()
    time.sleep(fault.delay)
    drain.kill()
    return _expect(drain.status(), 0, KILLED) == KILLED


def _broker(world: World, fault: Injection) -> bool:
    drain = world.drain()
    time.sleep(fault.delay)
    world.broker.kill()
    time.sleep(fault.seconds)
    world.start_broker()
    _expect(drain.status(), 0, REFUSED)
    return True


def _sender(world: World, fault: Injection) -> bool:
    drain = world.drain()
    time.sleep(fault.delay)
    world.kill_sender(fault.what)
    world.start_sender(fault.what)
    _expect(drain.status(), 0)
    return True


def _network(world: World, fault: Injection) -> bool:
    drain = world.drain()
    time.sleep(fault.delay)
    world.proxy.become(Network(fault.what))
    time.sleep(fault.seconds)
    world.proxy.become(Network.WHOLE)
    _expect(drain.status(), 0, REFUSED)
    return True


def _disk(world: World, fault: Injection) -> bool:
    """Fill the disk, or where there is none to fill allow no file beyond some size."""
    before = world.generation
    if fault.what == "full" and world.disk is not None:
        world.disk.leave(fault.room)
        status = world.drain().status()
        world.disk.make_room()
    else:
        status = world.drain(file_bytes=4096 + fault.room).status()
    if world.generation < before:
        raise FaultError(f"generation {before} was committed and is not any more")
    return _expect(status, 0, REFUSED) == REFUSED


def _repeated(world: World, fault: Injection) -> bool:
    before = world.books.number("repeated")
    drain = world.drain()
    time.sleep(fault.delay)
    world.repeat()
    done = wait_until(lambda: world.books.number("repeated") > before + 200, 20)
    _expect(drain.status(), 0)
    return done


def _behind(world: World, fault: Injection) -> bool:
    """Let much be sent that nobody takes; then take it in small drains, one of them killed."""
    begun = world.books.number("messages")
    wait_until(lambda: world.books.number("messages") > begun + 2_000 + 500 * fault.occurrence, 30)
    drain: Drain = world.drain(fault.what, fault.occurrence, max_reports=_FEW)
    return _expect(drain.status(), 0, KILLED) == KILLED


def _expect(status: int, *allowed: int) -> int:
    if status not in allowed:
        raise FaultError(f"a drain ended with {status}: see drain.log")
    return status


#: By kind: how it is done, and its share of a run.
KINDS: dict[str, tuple[Callable[[World, Injection], bool], int]] = {
    "drain killed at a step": (_at_step, 30),
    "drain killed at any instant": (_at_instant, 22),
    "broker killed": (_broker, 8),
    "sender killed": (_sender, 10),
    "network": (_network, 14),
    "disk full": (_disk, 8),
    "repeated and reordered": (_repeated, 4),
    "consumer far behind": (_behind, 4),
}

_WHAT: dict[str, tuple[str, ...]] = {
    "drain killed at a step": STEPS,
    "sender killed": ("fleet", "devices"),
    "network": tuple(each.value for each in Network if each is not Network.WHOLE),
    "disk full": ("full", "file size"),
    "consumer far behind": STEPS,
}


def schedule(seed: int, number: int) -> list[Injection]:
    """Return so many faults, every kind of them, as the seed wants."""
    source = random.Random(seed)
    kinds = [kind for kind, (_, share) in KINDS.items() for _ in range(share)]
    drawn = [*KINDS, *(source.choice(kinds) for _ in range(number - len(KINDS)))][:number]
    source.shuffle(drawn)
    return [_drawn(kind, source) for kind in drawn]


def _drawn(kind: str, source: random.Random) -> Injection:
    return Injection(
        kind,
        source.choice(_WHAT.get(kind, ("",))),
        source.choice((1, 1, 1, 2, 3)),
        source.uniform(0, 1.5),
        source.choice((0.05, 0.5, 2.0, 5.0)) * source.uniform(0.5, 1.5),
        int(4096 * 2 ** source.uniform(0, 9)),
    )


def inject(world: World, fault: Injection) -> bool:
    """Bring a fault about; return whether it has hit.

    Raises
    ------
    FaultError
        A drain did neither end nor say why it cannot, or a commit is gone.
    """
    return KINDS[fault.kind][0](world, fault)
