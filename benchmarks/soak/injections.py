"""What befalls runs, and how each of it is brought about."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.soak.proxy import Network
from benchmarks.soak.runs import KILLED, REFUSED, STEPS, Run
from benchmarks.soak.schedule import FaultError, Injection
from benchmarks.soak.stage import wait_until
from benchmarks.soak.world import World

#: Reports that a run takes at most when the consumer is far behind.
_FEW = 1_000


def _at_step(world: World, fault: Injection) -> bool:
    status = world.aggregate(fault.what, fault.occurrence).status()
    return _expect(status, 0, KILLED) == KILLED


def _at_instant(world: World, fault: Injection) -> bool:
    run = world.aggregate()
    time.sleep(fault.delay)
    run.kill()
    return _expect(run.status(), 0, KILLED) == KILLED


def _broker(world: World, fault: Injection) -> bool:
    run = world.aggregate()
    time.sleep(fault.delay)
    world.broker.kill()
    time.sleep(fault.seconds)
    world.start_broker()
    _expect(run.status(), 0, REFUSED)
    return True


def _sender(world: World, fault: Injection) -> bool:
    run = world.aggregate()
    time.sleep(fault.delay)
    world.kill_sender(fault.what)
    world.start_sender(fault.what)
    _expect(run.status(), 0)
    return True


def _network(world: World, fault: Injection) -> bool:
    run = world.aggregate()
    time.sleep(fault.delay)
    world.proxy.become(Network(fault.what))
    time.sleep(fault.seconds)
    world.proxy.become(Network.WHOLE)
    _expect(run.status(), 0, REFUSED)
    return True


def _disk(world: World, fault: Injection) -> bool:
    """Fill the disk, or where there is none to fill allow no file beyond some size."""
    before = world.generation
    if fault.what == "full" and world.disk is not None:
        world.disk.leave(fault.room)
        status = world.aggregate().status()
        world.disk.make_room()
    else:
        status = world.aggregate(file_bytes=4096 + fault.room).status()
    if world.generation < before:
        raise FaultError(f"generation {before} was committed and is not any more")
    return _expect(status, 0, REFUSED) == REFUSED


def _repeated(world: World, fault: Injection) -> bool:
    before = world.books.number("repeated")
    run = world.aggregate()
    time.sleep(fault.delay)
    world.repeat()
    done = wait_until(lambda: world.books.number("repeated") > before + 200, 20)
    _expect(run.status(), 0)
    return done


def _behind(world: World, fault: Injection) -> bool:
    """Let much be sent that nobody takes; then take it in small runs, one of them killed."""
    begun = world.books.number("messages")
    wait_until(lambda: world.books.number("messages") > begun + 2_000 + 500 * fault.occurrence, 30)
    run: Run = world.aggregate(fault.what, fault.occurrence, max_reports=_FEW)
    return _expect(run.status(), 0, KILLED) == KILLED


def _expect(status: int, *allowed: int) -> int:
    if status not in allowed:
        raise FaultError(f"a run ended with {status}: see run.log")
    return status


KINDS: dict[str, Callable[[World, Injection], bool]] = {
    "run killed at a step": _at_step,
    "run killed at any instant": _at_instant,
    "broker killed": _broker,
    "sender killed": _sender,
    "network": _network,
    "disk full": _disk,
    "repeated and reordered": _repeated,
    "consumer far behind": _behind,
}

#: Their shares of a run.
SHARES = dict(zip(KINDS, (30, 22, 8, 10, 14, 8, 4, 4), strict=True))

CHOICES: dict[str, tuple[str, ...]] = {
    "run killed at a step": STEPS,
    "sender killed": ("fleet", "devices"),
    "network": tuple(each.value for each in Network if each is not Network.WHOLE),
    "disk full": ("full", "file size"),
    "consumer far behind": STEPS,
}
