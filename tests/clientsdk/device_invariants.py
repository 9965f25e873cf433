"""What must hold of a device after every step of its life."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from device_plans import counted, reports

from clientsdk.ledger import Ledger, read_file
from mechanisms.coins import shard_of
from sotto.errors import StoreError
from sotto.wire.format import decode_message

if TYPE_CHECKING:
    from device_machine import DeviceMachine

#: Values that are recorded unless a step names one; no plan knows the text.
#: Shards of all plans here.
SHARDS = 8
MARK, FIGURE = "Qzx7-marked-value", 7.123456789012345


class Invariants:
    """What must hold after every step, whatever came before.

    - One chain has one payload a level, one plan and one event; a message is of one pseudonym and
      goes to its shard; it is charged for, in the file, before the receiver sees its first byte.
    - What an aggregator counts of a period is spent there, what is spent is reserved, and what is
      reserved never falls; recording reserves no more than the ceilings.
    - Nothing waits, and nothing is sent, without consent.
    - A chain that no longer waits, and a secret of an earlier period, are in no byte of any file.
    - No file, message, log line or text of the ledger has a value that was recorded.
    - A permanent response stays as it is until it is erased.
    - Outcomes, reports and lapses are counted as they came.
    """

    def __init__(self, machine: DeviceMachine) -> None:
        self.machine = machine
        self.ledger: Ledger | None = None
        self.chains: set[str] = set()
        self.secrets: set[bytes] = set()
        self.responses: dict[bytes, bytes] = {}
        self.messages = 0
        #: Periods of messages that were handed out before they were charged for.
        self.uncharged: list[int] = []

    def check(self, verb: str) -> None:
        messages = self.messages
        self._payloads()
        ledger = self._read()
        if verb == "flush" and self.ledger is not None and not self.ledger.consent:
            assert self.messages == messages, "something is sent without consent"
        if ledger is not None:
            self._consent(ledger, verb)
            self._amounts(ledger, verb)
            self._erasure(ledger)
            self._values(ledger)
            self.ledger = ledger
        for client, tally in self.machine.tallies.items():
            stats = client.stats()
            assert stats.outcomes == tally.outcomes
            assert (stats.sent, sum(stats.lapses)) == (tally.sent, tally.lapsed)

    def _read(self) -> Ledger | None:
        """Read the file beside its clients, without touching what they have in memory."""
        machine = self.machine
        if machine.path is None:
            clients = list(machine.clients.values())
            return clients[0].ledger() if clients else None
        with suppress(StoreError):
            return read_file(machine.path) if machine.path.exists() else None
        return None

    def _payloads(self) -> None:
        assert not self.uncharged, "a message is handed out before it is charged for"
        messages = self.machine.receiver.messages
        counted(reports(messages), self.machine.plans)
        for shard, body in messages[self.messages :]:
            names = {row.pseudonym for group in decode_message(body).groups for row in group.rows}
            assert len(names) == 1, "a message of two pseudonyms"
            assert shard == shard_of(names.pop(), SHARDS)
        self.messages = len(messages)

    def charged(self, shard: int, message: bytes) -> None:
        """Note whether the file has been charged for a message that the publisher is given."""
        machine = self.machine
        if machine.path is None or machine.accidents:
            return
        ledger = self._read()
        spent = {each.number: each.spent for each in ledger.periods} if ledger else {}
        messages = [*machine.receiver.messages, (shard, message)]
        for number, amount in machine.counted_by_period(messages).items():
            if ledger is not None and amount > spent[number]:
                self.uncharged.append(number)

    def _consent(self, ledger: Ledger, verb: str) -> None:
        if verb in ("withdraw", "flush", "start") and not ledger.consent and not self.machine.owes:
            assert not ledger.pending, "something waits without consent"

    def _amounts(self, ledger: Ledger, verb: str) -> None:
        before, after = self.ledger, {each.number: each for each in ledger.periods}
        assert ledger.spent <= ledger.reserved
        if before is not None:
            assert before.spent <= ledger.spent or self.machine.accidents
            assert before.reserved <= ledger.reserved or self.machine.accidents
        if verb == "record" and before is not None and before.reserved < ledger.reserved:
            most = ledger.ceilings
            assert ledger.reserved <= most.lifetime
            assert after[ledger.period].reserved <= most.period
        if self.machine.accidents:
            return
        if before is not None:
            for each in before.periods:
                assert each.reserved <= after[each.number].reserved
                assert each.spent <= after[each.number].spent
        for number, amount in self.machine.counted_by_period(
            self.machine.receiver.messages
        ).items():
            assert amount <= after[number].spent, "something was sent that was not charged"
        for chain in ledger.pending:
            assert 0 <= chain.delivered <= chain.charged <= chain.levels
        promised = Counter[int]()
        for chain in ledger.pending:
            promised[chain.period] += chain.reserved
        for number, period in after.items():
            assert promised.pop(number, 0) <= period.reserved
            assert period.spent <= period.reserved
        assert not promised

    def _erasure(self, ledger: Ledger) -> None:
        waiting = {chain.chain for chain in ledger.pending}
        self.chains |= waiting
        path = self.machine.path
        if path is None or self.machine.owes:
            return
        content = contents(path)
        with closing(sqlite3.connect(path)) as connection:
            try:
                current = {bytes(row[0]) for row in connection.execute("SELECT value FROM secret")}
                drawn = dict(connection.execute("SELECT binding, response FROM permanent"))
            except sqlite3.DatabaseError:
                # Damage that no client has come to see yet.
                return
        self.secrets |= current
        for binding, response in drawn.items():
            before = self.responses.get(binding) or response
            assert response in (before, b"") or self.machine.accidents, (
                "a permanent response was drawn again"
            )
        self.responses = drawn
        for chain in self.chains - waiting:
            assert bytes.fromhex(chain) not in content, "a chain that is gone is in the file"
        for secret in self.secrets - current:
            assert secret not in content, "the secret of an earlier period is in the file"

    def _values(self, ledger: Ledger) -> None:
        path, machine = self.machine.path, self.machine
        told = [str(ledger), repr(ledger), *machine.log.lines, *map(repr, machine.clients.values())]
        assert not any(MARK in line or repr(FIGURE)[:10] in line for line in told)
        places = [body for _, body in machine.receiver.messages]
        places += [contents(path)] if path is not None else []
        assert not any(MARK.encode() in place for place in places)


def contents(path: Path) -> bytes:
    """All bytes of the device's files but those kept aside; no other process has locks on them."""
    files = sorted(path.parent.glob(path.name + "*"))
    return b"".join(each.read_bytes() for each in files if "-damaged-" not in each.name)
