"""A simulated device's clock, and its way to the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sotto.wire.format import GROUP, HEADER, ROW

if TYPE_CHECKING:
    from sotto.cli.fleet import Network
    from sotto.cli.lanes import SortedLanes


class Clock:
    """A device's clock, moved by the simulation."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Radio:
    """A device's publisher: through the network to the lanes.

    Attributes
    ----------
    pseudonyms : dict of int to str
        By budget period, hexadecimal, as seen in what was sent.
    drawn : dict of bytes to (str, int)
        Metric and row of each chain that was drawn and has not been sent.
    permanent : dict of int to (str, int)
        By the number of a constant metric: its name, and the row of which its response is.
    kept : list of (str, int, int)
        Metric, period and row of each chain that was sent.
    """

    def __init__(
        self, device: int, clock: Clock, network: Network, lanes: SortedLanes, period: int
    ) -> None:
        self._device = device
        self._clock = clock
        self._network = network
        self._lanes = lanes
        self._period = period
        self.pseudonyms: dict[int, str] = {}
        self.drawn: dict[bytes, tuple[str, int]] = {}
        self.permanent: dict[int, tuple[str, int]] = {}
        self.kept: list[tuple[str, int, int]] = []

    def publish(self, shard: int, message: bytes) -> None:
        """Send one message at the time of the device's clock."""
        _, pseudonym, _, event = ROW.unpack_from(message, HEADER.size + GROUP.size)
        period = event // self._period
        self.pseudonyms[period] = pseudonym.hex()
        if self.drawn or self.permanent:
            for number, chain in _chains(message):
                if chain in self.drawn:
                    name, row = self.drawn.pop(chain)
                    self.kept.append((name, period, row))
                elif number in self.permanent:
                    name, row = self.permanent[number]
                    if (name, period, row) not in self.kept:
                        self.kept.append((name, period, row))
        for append, arrived in self._network.carry(self._device, self._clock.now, message):
            self._lanes.add(append, arrived)

    def close(self) -> None:
        """Nothing to close: the lanes are the fleet's."""


def _chains(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield metric and chain id of every row of a message that the SDK made."""
    at = HEADER.size
    while at < len(message):
        metric, width, rows = GROUP.unpack_from(message, at)
        at += GROUP.size
        for _ in range(rows):
            yield metric, message[at + 17 : at + 33]
            at += ROW.size + width
