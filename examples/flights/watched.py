"""Aircraft that are watched: which value each report was made of, and a network with faults."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from clientsdk import Client
from clientsdk.testing import FakeClock
from mechanisms.base import Mechanism
from mechanisms.randomness import Source
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import decode_message
from sotto_cli.simulation.devices import DevicePublisher, Fleet, Played

from .faults import FaultyNetwork


@dataclass(frozen=True)
class KeptValues:
    """Which row's value a metric's chain was made of; never written to a log."""

    device: int
    metric: str
    period: int
    row: int


@dataclass
class WatchedPlay(Played):
    """The result of a replay, and what was seen of it."""

    kept: list[KeptValues] = field(default_factory=list)
    networks: list[FaultyNetwork] = field(default_factory=list)


class WatchedMechanism:
    """Passes draws on to a mechanism and remembers the chain id of the last one.

    A chain id in a message shows that its value was kept, and the draw shows from which row: the
    SDK itself never reveals which value stays in a reservoir. Only a simulation may look.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self.chain: bytes | None = None

    def draw(
        self, symbol: object, chain: bytes, pseudonym: bytes, source: Source
    ) -> tuple[bytes, ...]:
        """Draw as the mechanism does."""
        self.chain = chain
        return self._mechanism.draw(symbol, chain, pseudonym, source)

    def __getattr__(self, name: str) -> object:
        return getattr(self._mechanism, name)


class WatchedPublisher(DevicePublisher):
    """A device's publisher: through the network to the log."""

    def __init__(self, number: int, network: FaultyNetwork, *more: Any) -> None:
        super().__init__(*more)
        self._number, self._network = number, network
        #: Metric and row of each chain that was drawn and has not been sent.
        self.drawn: dict[bytes, tuple[str, int]] = {}
        #: The values behind the chains that were sent.
        self.kept: list[KeptValues] = []

    def publish(self, shard: int, message: bytes) -> None:
        """Note of which rows the chains are, and send the message."""
        for group in decode_message(message).groups:
            for row in group.rows:
                if row.chain in self.drawn:
                    metric, of = self.drawn.pop(row.chain)
                    kept = KeptValues(self._number, metric, row.event // self.period, of)
                    self.kept.append(kept)
        super().publish(shard, message)

    def send(self, now: int, message: bytes) -> None:
        """Send what arrives of a message."""
        for append, arrived in self._network.carry(self._number, now, message):
            self.log.add(append, arrived)


class WatchedFleet(Fleet):
    """Plays aircraft back through a network, of which it works on a copy, and watches them.

    Chains of constant metrics, of top items and of measures are not of one row: plans have none.
    """

    def __init__(self, plan: CompiledPlan, *more: Any, network: FaultyNetwork) -> None:
        # Mechanisms are watched in a plan of their own: the caller's stays as it is.
        plan = CompiledPlan.from_json(plan.to_json())
        self._watched = {each.name: WatchedMechanism(each.mechanism) for each in plan.metrics}
        for metric in plan.metrics:
            # The attribute is computed once and then kept in the instance.
            vars(metric)["mechanism"] = self._watched[metric.name]
        super().__init__(plan, *more)
        self._flying: WatchedPublisher
        self.played: WatchedPlay = WatchedPlay(networks=[deepcopy(network)])

    def publisher(self, number: int, clock: FakeClock) -> DevicePublisher:
        (network,) = self.played.networks
        self._flying = WatchedPublisher(number, network, clock, self._log, self._plan.period)
        return self._flying

    def play(self, device: int, number: int) -> None:
        super().play(device, number)
        self.played.kept += self._flying.kept

    def record(self, client: Client, entry: int) -> None:
        super().record(client, entry)
        for name, mechanism in self._watched.items():
            if mechanism.chain is not None:
                self._flying.drawn[mechanism.chain] = name, int(self._recordings.row[entry])
                mechanism.chain = None
