"""What became of all reports of a shard: kept by the shard, told to the books."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pipelines import quarantine
from pipelines.audit import Totals
from pipelines.written import Tally, numbers_of
from sotto.decode import Reject


@dataclass(frozen=True)
class Ledger:
    """What a shard keeps of itself beside its states.

    Parameters
    ----------
    first_open : int or None
        The first budget period that takes rows; None if none has been closed.
    tally : Tally
        What became of the reports.
    rejects : mapping
        Reports rejected, by reason.
    touched : tuple of int
        Periods that have changed since the books were told of their audits.
    changed : bool
        Whether anything has.
    told, audited : int
        When the books were told, and when of audits, ms of the wall clock.
    """

    first_open: int | None = None
    tally: Tally = field(default_factory=Tally)
    rejects: Mapping[str, int] = field(default_factory=dict)
    touched: tuple[int, ...] = ()
    changed: bool = False
    told: int = 0
    audited: int = 0

    def plus(self, tally: Tally, rejects: Iterable[Reject], touched: Iterable[int]) -> Ledger:
        """Return this after more reports."""
        return replace(
            self,
            tally=self.tally.plus(tally),
            rejects=dict(Counter(self.rejects) + Counter(quarantine.numbers(rejects))),
            touched=tuple(sorted({*self.touched, *touched})),
            changed=True,
        )

    def to_json(self) -> bytes:
        """Return this as bytes."""
        return json.dumps(vars(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes | None) -> Ledger:
        """Return what :meth:`to_json` gave; a new one of None."""
        if content is None:
            return cls()
        value = json.loads(content)
        tally, touched = Tally(*value.pop("tally")), tuple(value.pop("touched"))
        return cls(tally=tally, touched=touched, **value)


@dataclass(frozen=True)
class Told:
    """What a shard tells the books.

    Parameters
    ----------
    first_open, tally, rejects
        As of its ledger: of all that it has ever taken.
    size : int
        Bytes of its states in keyed state.
    periods : mapping of int to Totals
        The audits of the periods that have changed since it last told.
    """

    first_open: int | None
    tally: Tally
    rejects: Mapping[str, int]
    size: int = 0
    periods: Mapping[int, Totals] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return this as bytes."""
        periods = [[period, *numbers_of(totals)] for period, totals in self.periods.items()]
        return json.dumps({**vars(self), "periods": periods}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Told:
        """Return what :meth:`to_json` gave."""
        value = json.loads(content)
        periods = {period: Totals(*numbers) for period, *numbers in value.pop("periods")}
        return cls(tally=Tally(*value.pop("tally")), periods=periods, **value)
