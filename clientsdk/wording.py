"""Amounts and times as people read them, and a ledger in words that a user can be shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clientsdk.ledger import Ledger, LedgerPeriod, PendingChain


def epsilon(micro: int) -> str:
    """Return micro-epsilon as people write epsilon, without zeros at the end.

    >>> epsilon(1_500_000), epsilon(2_000_000), epsilon(1)
    ('1.5', '2', '0.000001')
    """
    return f"{micro // 1_000_000}.{micro % 1_000_000:06d}".rstrip("0").rstrip(".")


def day(time: int) -> str:
    """Return the day of a time in milliseconds since the epoch, in UTC.

    >>> day(0)
    '1970-01-01'
    """
    return _written(time, "%Y-%m-%d")


def minute(time: int) -> str:
    """Return day, hour and minute.

    >>> minute(3_600_000)
    '1970-01-01 01:00'
    """
    return _written(time, "%Y-%m-%d %H:%M")


def _written(time: int, form: str) -> str:
    try:
        return datetime.fromtimestamp(time // 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        # A device whose clock is broken may be anywhere in time.
        return f"{time} ms"


_CONSENT = {
    "given": "You have agreed that randomized answers are sent to {collector}.",
    "withdrawn": "You have withdrawn your consent: nothing is recorded for {collector}, or sent.",
    "never given": "You have not agreed to anything: nothing is recorded for {collector}, or sent.",
}


def ledger_in_words(ledger: Ledger) -> str:
    """Return what a device has promised and released, in sentences; times are in UTC."""
    lines = [
        _CONSENT[ledger.consent].format(collector=ledger.collector),
        f"What is sent about one period costs at most epsilon {epsilon(ledger.ceilings.period)}, "
        f"and {epsilon(ledger.ceilings.lifetime)} in this device's life. The lower, the less can "
        f"be learnt.",
        f"So far {epsilon(ledger.spent)} is spent, of {epsilon(ledger.reserved)} that is set "
        f"aside.",
    ]
    if ledger.carried:
        lines.append(
            f"Of that, {epsilon(ledger.carried)} may have been spent before this file was damaged, "
            f"lost or replaced by an older one, and counts as spent."
        )
    elif ledger.damaged or ledger.restored:
        lines.append(
            "This file was damaged, lost or replaced by an older one: the period in which that was "
            "found counts as spent."
        )
    lines += [_period(each) for each in ledger.periods]
    lines += [
        f"{each.metric}: {epsilon(each.cost)} once for all periods, for an answer that "
        f"{'is kept' if each.held else 'was kept and is erased'} here."
        for each in ledger.permanent
    ]
    if ledger.pending:
        lines += ["Still to be sent:", *(f"  {_chain(each)}" for each in ledger.pending)]
    else:
        lines.append("Nothing is left to be sent.")
    return "\n".join(lines)


def _period(period: LedgerPeriod) -> str:
    count = sum(period.recordings.values())
    return (
        f"{day(period.start)} to {day(period.end)}: {count} value{'s' * (count != 1)} recorded; "
        f"spent {epsilon(period.spent)} of {epsilon(period.reserved)} set aside."
    )


def _chain(chain: PendingChain) -> str:
    """Return, level by level, what of a chain is sent and what is not yet."""
    levels = [f"{epsilon(cost)} {_state(chain, level)}" for level, cost in enumerate(chain.costs)]
    return (
        f"{chain.metric}, recorded about {minute(chain.event)}: epsilon {', '.join(levels)}; next "
        f"at {minute(chain.due)}"
    )


def _state(chain: PendingChain, level: int) -> str:
    """Return what became of a level; a device does not keep which went before the newest."""
    if level >= chain.charged:
        return "to come"
    if level < chain.charged - 1:
        return "sent or passed over"
    return "sent" if chain.delivered == chain.charged else "on its way"
