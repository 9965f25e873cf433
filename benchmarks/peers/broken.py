"""Peers that do not do what they say, shown by running them; they are not timed as if they did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DRAWS = 1000


class Fault(NamedTuple):
    """A peer, what it promises, and what it was seen to do."""

    peer: str
    promised: str
    seen: str


def faults() -> Iterator[Fault]:
    """Yield the faults that still show with the installed versions."""
    from pure_ldp.frequency_oracles import RAPPORClient

    f = 0.5
    client = RAPPORClient(f, 8, [[lambda index: 0, lambda index: 1]], 1, lambda value: value)
    kept = sum(client.privatise(0)[0][0] for _ in range(DRAWS))
    if kept == DRAWS:
        yield Fault(
            "pure-ldp RAPPORClient",
            f"reports a set bit as set with probability {1 - f / 2}",
            f"reported it as set in {kept} of {DRAWS} draws: no privacy for set bits",
        )


def main() -> None:
    """Print the faults."""
    for fault in faults():
        print(f"{fault.peer}: {fault.promised}; {fault.seen}")
