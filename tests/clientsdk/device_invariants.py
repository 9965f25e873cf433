"""Invariants of a device, which must hold after every step of its life."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from device_plans import WEEK, reports

from clientsdk.ledger import Ledger, read_file, reader
from clientsdk.sending import sender
from mechanisms.coins import shard_of
from sotto.errors import StoreError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.decode import decode
from sotto.wire.format import TRAILER

if TYPE_CHECKING:
    from device_machine import DeviceMachine

#: Shards of all plans here.
SHARDS = 8
#: Values that are recorded unless a step names one; no plan knows the text.
MARK, FIGURE = "Qzx7-marked-value", 7.123456789012345


#: Steps that touch no device, or whose doing a client has to see first.
QUIET = {"plan", "wait", "time", "receiver", "messages"}
QUIET |= {"meanwhile", "forget", "told", "words", "chance", "reconnect"}
QUIET |= {"copy", "restore", "lose", "damage", "cut", "alter"}


class Collector:
    """Every message that was handed to a publisher, taken or not, as an aggregator would read it.

    A message that cannot be is noted, and raises no error: a client would take that for a fault of
    the publisher.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.messages = 0
        #: Period, pseudonym and micro-epsilon of each chain, by its id.
        self.chains: dict[bytes, tuple[int, bytes, int]] = {}
        self._payloads: dict[tuple[bytes, int], bytes] = {}
        self._bindings: dict[bytes, tuple[bytes, bytes, int, int]] = {}
        #: The period of each pseudonym, and of each key that signed.
        self._periods: dict[bytes, int] = {}

    def take(self, shard: int, message: bytes, plans: Iterable[CompiledPlan]) -> None:
        known = {each.fingerprint: each for each in plans}
        self.messages += 1
        if MARK.encode() in message:
            self.wrong.append("a message has a value")
        if len(message) > sender.MAX_MESSAGE:
            self.wrong.append("a message is too long")
        found = reports([(shard, message)])
        if len({each.pseudonym for each in found}) != 1:
            self.wrong.append("a message is of two pseudonyms")
        if refused(message, known[found[0].fingerprint], max(each.event for each in found)):
            self.wrong.append("an aggregator refuses a message")
        period = found[0].event // WEEK
        key = message[-TRAILER:-64] if message[2] == 2 else b""
        for name in filter(None, (found[0].pseudonym, key)):
            if self._periods.setdefault(name, period) != period:
                self.wrong.append("two periods share a pseudonym or a key")
        for each in found:
            binding = each.pseudonym, each.fingerprint, each.metric, each.event
            if self._bindings.setdefault(each.chain, binding) != binding:
                self.wrong.append("a chain is bound twice")
            if self._payloads.setdefault((each.chain, each.level), each.payload) != each.payload:
                self.wrong.append("a level has two payloads")
            if shard != shard_of(each.pseudonym, SHARDS):
                self.wrong.append("a message goes to another shard")
            mechanism = known[each.fingerprint].metrics[each.metric].mechanism
            cost = max(mechanism.certified(each.level), self.chains.get(each.chain, (0, b"", 0))[2])
            self.chains[each.chain] = each.event // WEEK, each.pseudonym, cost

    def counted(self) -> Counter[int]:
        """The micro-epsilon that were handed out, by the number of the period."""
        found = Counter[int]()
        for period, _, cost in self.chains.values():
            found[period] += cost
        return found


def refused(message: bytes, plan: CompiledPlan, append: int) -> bool:
    """Whether an aggregator that receives a message at a time would reject any of it."""
    whole = np.array([0]), np.array([len(message)]), np.array([append])
    return bool(decode(message, *whole, Registry([plan])).rejects)


class Invariants:
    """Conditions that must hold after every step, whatever came before.

    - One chain has one payload a level, the one drawn for it, one plan and one event; a message is
      of one pseudonym, no longer than it may be, and goes to its shard; it is charged for, in the
      file, before the publisher sees its first byte.
    - A period has one pseudonym, and no other period has it or a key that signed its messages; an
      aggregator accepts every message. An amount that is handed out of it is spent there, one that
      is spent is reserved, and neither ever falls; a refused value reserves nothing, and neither
      recording nor sending goes beyond the ceilings. A withdrawal refunds nothing.
    - After an accident what was spent is still reserved, and no period has more than its ceiling.
    - Nothing waits, no pseudonym is kept, and nothing is sent, without consent.
    - No line is logged at a use that a measure counts.
    - A chain that no longer waits, pseudonym and key of a period that is through, the secret of
      an earlier one, an arm's secret, a permanent response and the last state of a measure that
      were erased are in no byte of any file. The secret of panels stays as it is.
    - No file, message, log line or text of the ledger has a value that was recorded.
    - A permanent response stays as it is until it is erased.
    - Outcomes, reports and lapses are counted as they came.
    """

    def __init__(self, machine: DeviceMachine) -> None:
        self.machine = machine
        self.collector = Collector()
        self.ledger: Ledger | None = None
        #: Ids of chains that wait, their pseudonyms, and the secret of the period.
        self.there: set[bytes] = set()
        self.responses: dict[bytes, bytes] = {}
        #: The states of measures, by metric and period.
        self.measured: dict[str, bytes] = {}
        self.panel: list[tuple[bytes]] = []
        self._messages = 0

    def hand_over(self, shard: int, message: bytes) -> None:
        """Look at a message that a publisher is given, before it does anything with it."""
        collector, machine = self.collector, self.machine
        collector.take(shard, message, machine.plans)
        ledger = self._read() if machine.path is not None else None
        if ledger is not None and not machine.accidents:
            spent = {each.number: each.spent for each in ledger.periods}
            if any(cost > spent[period] for period, cost in collector.counted().items()):
                collector.wrong.append("a message is handed over before it is charged for")
        if ledger is not None:
            with closing(reader(str(machine.path))) as connection:
                drawn = dict(connection.execute("SELECT id, payloads FROM chain"))
            for each in reports([(shard, message)]):
                width, payloads = len(each.payload), drawn.get(each.chain, b"")
                if payloads and payloads[width * each.level :][:width] != each.payload:
                    collector.wrong.append("a report has the payload of another level")

    def check(self, verb: str, came: str) -> None:
        """Compare all there is, after a step of which something came."""
        assert not self.collector.wrong, self.collector.wrong
        if verb in QUIET:
            return
        before, ledger = self.ledger, self._read()
        if verb == "flush" and before is not None and not before.consent:
            assert self.collector.messages == self._messages, "something is sent without consent"
        self._messages = self.collector.messages
        if verb in ("count", "reach", "feed") and came == "accepted":
            assert not self.machine.log.lines, "a line tells of a use"
        if ledger is not None:
            if verb in ("withdraw", "flush", "start") and not ledger.consent:
                names = [each.pseudonym or each.signed_pseudonym for each in ledger.periods]
                assert self.machine.owes or not any((*ledger.pending, *names)), (
                    "something waits without consent"
                )
            self._amounts(ledger)
            if before is not None:
                self._changes(before, ledger, verb, came)
            content = b"" if self.machine.path is None else contents(self.machine.path)
            self._erasure(verb, ledger, content)
            self._values(ledger, content)
        self.ledger = ledger or before
        for client, tally in self.machine.tallies.items():
            stats = client.stats()
            assert stats.outcomes == tally.outcomes
            assert (stats.sent, sum(stats.lapses.values())) == (tally.sent, tally.lapsed)

    def _read(self) -> Ledger | None:
        """Read the file beside its clients, without touching what they have in memory."""
        machine = self.machine
        if machine.path is None:
            clients = list(machine.clients.values())
            return clients[0].ledger() if clients else None
        with suppress(StoreError):
            return read_file(machine.path) if machine.path.exists() else None
        return None

    def _amounts(self, ledger: Ledger) -> None:
        assert ledger.spent <= ledger.reserved
        if self.machine.accidents:
            most = max(each.ceilings.period for each in self.machine.plans)
            assert all(cost <= most for cost in self.collector.counted().values())
            return
        periods = {each.number: each for each in ledger.periods}
        for number, cost in self.collector.counted().items():
            assert cost <= periods[number].spent
        names = {(period, name) for period, name, _ in self.collector.chains.values()}
        named = sum(bool(e.pseudonym) + bool(e.signed_pseudonym) == 2 for e in ledger.periods)
        assert len(names) <= len(self.collector.counted()) + named, "a period has two pseudonyms"
        promised = Counter[int]()
        for chain in ledger.pending:
            assert 0 <= chain.delivered <= chain.charged <= chain.levels
            promised[chain.period] += chain.reserved
        assert promised.keys() <= periods.keys()
        for number, period in periods.items():
            assert promised[number] <= period.reserved
            assert period.spent <= period.reserved

    def _changes(self, before: Ledger, after: Ledger, verb: str, came: str) -> None:
        """Compare the ledger with that before the step."""
        most, grown = after.ceilings, after.reserved > before.reserved
        periods = {each.number: each for each in after.periods}
        if verb == "record" and grown:
            assert "accepted" in came
            assert after.reserved <= most.lifetime
            assert periods[after.period].reserved <= most.period
        if self.machine.accidents:
            assert after.reserved >= before.spent, "an accident wins something"
            return
        if verb == "withdraw":
            assert (before.reserved, before.spent) == (after.reserved, after.spent)
        if verb == "flush" and after.spent > before.spent:
            assert after.spent <= most.lifetime
        for each in before.periods:
            now = periods[each.number]
            assert each.reserved <= now.reserved
            assert each.spent <= now.spent
            assert each.spent == now.spent or verb != "flush" or now.spent <= most.period

    def _erasure(self, verb: str, ledger: Ledger, content: bytes) -> None:
        """Check that what has just gone is gone from every byte, and what was drawn stays."""
        waiting = {bytes.fromhex(chain.chain) for chain in ledger.pending}
        self.there |= waiting
        path = self.machine.path
        if path is None or (self.machine.owes and verb != "gone"):
            return
        with closing(sqlite3.connect(path)) as connection:
            try:
                secrets = connection.execute(
                    "SELECT value FROM secret UNION SELECT seed FROM signing"
                    " UNION SELECT secret FROM arm"
                    " UNION SELECT response FROM permanent WHERE length(response) >= 8"
                ).fetchall()
                panel = connection.execute("SELECT secret FROM panel").fetchall()
                drawn = dict(connection.execute("SELECT binding, response FROM permanent"))
                measured = dict(
                    connection.execute(
                        "SELECT tally || period, state FROM measure WHERE state > x''"
                    )
                )
            except sqlite3.DatabaseError:
                # Damage that no client has come to see yet.
                return
        names = {
            name for each in ledger.periods for name in (each.pseudonym, each.signed_pseudonym)
        }
        here = waiting | {bytes.fromhex(name) for name in names if name is not None}
        here |= {value for (value,) in secrets if isinstance(value, bytes)}
        for gone in self.there - here:
            assert gone not in content, "a chain, pseudonym or secret that is gone is in the file"
        self.there = here
        for row in self.measured.keys() - measured.keys():
            # A number of few different bytes, behind the random ones, may be there by chance.
            state = self.measured[row]
            state = state[9:] if len(set(state[9:])) > 6 else state
            gone = self.machine.accidents or state not in content
            assert gone, "what was measured is in the file"
        self.measured = measured
        assert panel == (self.panel or panel) or self.machine.accidents, "turns are drawn again"
        self.panel = panel
        for binding, response in drawn.items():
            known = response in (self.responses.get(binding) or response, b"")
            assert known or self.machine.accidents, "a permanent response was drawn again"
        self.responses = drawn

    def _values(self, ledger: Ledger, content: bytes) -> None:
        lines = self.machine.log.lines
        told = [str(ledger), repr(ledger), *map(repr, self.machine.clients.values()), *lines]
        lines.clear()
        names = [
            name for each in ledger.periods for name in (each.pseudonym, each.signed_pseudonym)
        ]
        assert not any(name in line for name in filter(None, names) for line in told)
        assert not any(MARK in line or repr(FIGURE)[:10] in line for line in told)
        assert MARK.encode() not in content


def contents(path: Path) -> bytes:
    """All bytes of the device's files but those kept aside; no other process has locks on them."""
    files = sorted(path.parent.glob(path.name + "*"))
    return b"".join(each.read_bytes() for each in files if "-damaged-" not in each.name)
