"""Compares all bytes ever published with the ledger after each kill."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from benchmarks.kills.life import LENGTH, WEEK, acknowledged, plan
from clientsdk.ledger import ALL_METRICS, Ledger, LedgerPeriod, read_file
from sotto.wire.format import decode_message

_HEAD = 2 * LENGTH.size


class BrokenPromiseError(Exception):
    """Something that must hold does not; the message says what, and no payload."""


class Witness:
    """Sees what one device publishes and what its ledger says, and holds both together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = plan()
        self._read = 0
        self._payloads: dict[tuple[bytes, int, bytes, int], bytes] = {}
        self._bindings: dict[bytes, tuple[bytes, int, int]] = {}
        self._newest: dict[bytes, tuple[int, int]] = {}
        self._names: dict[bytes, int] = {}
        self._before: dict[int, tuple[int, int]] = {}
        self.messages = 0
        #: Reports that were published a second time, with the same bytes.
        self.again = 0

    @property
    def reports(self) -> int:
        """How many different reports were published."""
        return len(self._payloads)

    def look(self) -> Ledger:
        """Compare everything at one moment, while processes go on; return the ledger then."""
        # In this order: what came first is in what is read later.
        self._read_published()
        accepted = acknowledged(self._folder)
        ledger = read_file(self._folder / "device.db")
        counted = self._counted()
        # All messages of a finished period are published before the ledger says that it is over.
        self._read_published()
        self._check_ledger(ledger, accepted)
        spent = {period.number: period.spent for period in ledger.periods}
        for period, cost in counted.items():
            _hold(cost <= spent.get(period, 0), "the aggregator counts more than was spent")
        return ledger

    def close(self) -> None:
        """Compare once more when everything is delivered: now the two sums are equal."""
        ledger = self.look()
        _hold(not ledger.pending, "chains are left")
        spent = {period.number: period.spent for period in ledger.periods if period.spent}
        counted = self._counted()
        wrong = {
            each for each in spent.keys() | counted.keys() if spent.get(each) != counted.get(each)
        }
        _hold(not wrong, f"what was spent is not what was counted, in periods {sorted(wrong)}")
        with closing(sqlite3.connect(self._folder / "device.db")) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchone()
        _hold(found == ("ok",), "the file is damaged")

    def _check_ledger(self, ledger: Ledger, accepted: int) -> None:
        _hold(ledger.carried == ledger.damaged == ledger.restored == 0, "a loss was seen in vain")
        response = self._plan.metric("model").permanent
        _hold(
            [charge.cost for charge in ledger.permanent] in ([], [response]),
            "a permanent response was drawn twice",
        )
        after = {period.number: (period.reserved, period.spent) for period in ledger.periods}
        for number, (reserved, spent) in self._before.items():
            now = after.get(number, (0, 0))
            _hold(now[0] >= reserved and now[1] >= spent, "the ledger has forgotten")
        _hold(
            all(spent <= reserved for reserved, spent in after.values()), "spent and not reserved"
        )
        self._before = after
        promised: defaultdict[int, int] = defaultdict(int)
        for chain in ledger.pending:
            promised[chain.period] += chain.reserved
        for number, cost in promised.items():
            _hold(cost <= after.get(number, (0, 0))[0], "a chain without a charge")
        taken = sum(map(self._colours, ledger.periods))
        _hold(taken >= accepted, "an acknowledged value is lost")

    def _colours(self, period: LedgerPeriod) -> int:
        """Return how many colours were recorded; a period that is through has only a sum of all."""
        if ALL_METRICS not in period.recordings:
            return period.recordings.get("kills/colour", 0)
        colour = self._plan.metric("colour").index
        return sum(
            metric == colour and event // WEEK == period.number
            for _, metric, event in self._bindings.values()
        )

    def _read_published(self) -> None:
        path = self._folder / "published"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        at = 0
        while at + _HEAD <= len(content):
            (length,) = LENGTH.unpack_from(content, at)
            body = content[at + _HEAD : at + _HEAD + length]
            if len(body) < length:
                break
            self._take(body)
            at += _HEAD + length
        self._read += at

    def _take(self, body: bytes) -> None:
        self.messages += 1
        for run in decode_message(body).groups:
            mechanism = self._plan.metrics[run.metric].mechanism
            for row in run.rows:
                key = (row.pseudonym, run.metric, row.chain, row.level)
                self.again += key in self._payloads
                _hold(
                    self._payloads.setdefault(key, row.payload) == row.payload,
                    "two payloads for one key",
                )
                binding = (row.pseudonym, run.metric, row.event)
                _hold(
                    self._bindings.setdefault(row.chain, binding) == binding,
                    "a chain is bound twice",
                )
                period = row.event // WEEK
                _hold(
                    self._names.setdefault(row.pseudonym, period) == period,
                    "a pseudonym of two periods",
                )
                cost = mechanism.certified(row.level)
                if cost > self._newest.get(row.chain, (0, 0))[1]:
                    self._newest[row.chain] = period, cost

    def _counted(self) -> dict[int, int]:
        totals: defaultdict[int, int] = defaultdict(int)
        for period, cost in self._newest.values():
            totals[period] += cost
        return dict(totals)


def _hold(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenPromiseError(what)
