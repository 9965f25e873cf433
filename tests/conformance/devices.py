"""What devices do: the ledger, the outbox, and the rollback guard, as sequences of calls."""

from __future__ import annotations

from typing import Any

from tests.conformance import files, scenarios

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
#: Within a budget period, not at its beginning.
START = 2888 * WEEK + 2 * DAY + 123_456
#: From when on plan "soon" has expired.
EXPIRY = 2888 * WEEK + 5 * DAY
#: Until when aggregators accept a report of a metric without delays that was recorded at the start.
LAST = START // HOUR * HOUR + WEEK + DAY

Step = dict[str, Any]


def _open(at: int = START, plan: str = "device", **more: Any) -> Step:
    return {"do": "open", "plan": plan, "at": at, **more}


def _record(metric: str, at: int = START, value: Any = "red", **more: Any) -> Step:
    return {"do": "record", "metric": metric, "value": value, "at": at, **more}


def _flush(at: int, **more: Any) -> Step:
    return {"do": "flush", "at": at, **more}


def _round(at: int, choice: int, chance: tuple[int, int] = (1, 2), **more: Any) -> Step:
    given = {"window": HOUR, "choice": choice, "chance": list(chance)}
    return {"do": "round", "at": at, **given, **more}


AGREE: Step = {"do": "agree"}
AGAIN: Step = {"do": "agree", "again": True}
WITHDRAW: Step = {"do": "withdraw"}
CLOSE: Step = {"do": "close"}
OPENED = [_open(), AGREE]

LEDGER: dict[str, list[Step]] = {
    "nothing is recorded before consent": [_open(), _record("colour"), AGREE, _record("colour")],
    "once a period, and again in the next": [
        *OPENED,
        _record("colour"),
        _record("colour"),
        _record("colour", START + 4 * DAY + 23 * HOUR),
        _record("colour", START + 5 * DAY),
    ],
    "twice a period": [*OPENED, *[_record("twice")] * 3],
    "every level is charged when it is sent, and nothing twice": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR),
        _flush(START + 3 * HOUR),
        _flush(START + DAY + 3 * HOUR),
        _flush(START + 8 * DAY),
    ],
    "of several levels that are due the newest alone": [
        *OPENED,
        _record("colour"),
        _flush(START + 2 * DAY),
        _flush(START + 9 * DAY),
    ],
    "the ceiling of the period": [
        _open(ceilings=[2_500_000, 24_000_000]),
        AGREE,
        _record("colour"),
        _record("twice"),
        _record("twice", START + WEEK),
        _record("twice", START + WEEK),
        _record("colour", START + WEEK),
    ],
    "the ceiling of the lifetime, of which a permanent response is paid once": [
        _open(ceilings=[3_000_000, 4_500_000]),
        AGREE,
        _record("lasting"),
        _record("colour"),
        _record("lasting", START + WEEK),
        _record("colour", START + WEEK),
        _record("lasting", START + 2 * WEEK),
        _record("twice", START + 2 * WEEK),
    ],
    "a permanent response is drawn once; every period sends from it": [
        *OPENED,
        _record("lasting"),
        _record("lasting"),
        _flush(START + DAY + 3 * HOUR),
        _record("lasting", START + WEEK, "blue"),
        _flush(START + WEEK + DAY + 3 * HOUR),
    ],
    "a reservoir keeps one value of a period, and pays for one": [
        *OPENED,
        *[_record("sample", START + hour * HOUR) for hour in range(6)],
        _flush(START + 5 * DAY),
        _flush(START + WEEK + 10 * HOUR),
        _flush(START + 2 * WEEK + 10 * HOUR),
    ],
    "a reservoir that was erased by a withdrawal hands nothing over": [
        *OPENED,
        _record("twice"),
        _record("sample"),
        WITHDRAW,
        AGAIN,
        *[_record("sample", START + hour * HOUR) for hour in range(9)],
    ],
    "panels: a device answers in its turn": [
        *OPENED,
        *[_record("seldom", START + weeks * WEEK) for weeks in range(6)],
    ],
    "top items are counted in memory, and drawn when the period is over": [
        *OPENED,
        *[_record("item", START + HOUR, value) for value in "aabcaaaaa"],
        _flush(START + 5 * DAY - 2 * HOUR),
        _flush(START + 5 * DAY + 2 * HOUR),
    ],
    "withdrawn, and agreed again within the period: what was reserved stays": [
        *OPENED,
        _record("colour"),
        _record("lasting"),
        _flush(START + 3 * HOUR),
        WITHDRAW,
        _record("twice"),
        AGREE,
        AGAIN,
        _record("colour"),
        _record("twice"),
        _record("lasting", START + WEEK),
    ],
    "groups: agreed to, and withdrawn, one by one": [
        _open(plan="words"),
        {**AGREE, "groups": ["look"]},
        _record("colour"),
        _record("size"),
        {**AGREE, "groups": ["speed"]},
        _record("size"),
        {**WITHDRAW, "groups": ["look"]},
        _record("colour", START + WEEK),
        {**AGREE, "groups": ["look"]},
        {**AGAIN, "groups": ["look"]},
        _record("colour", START + WEEK),
        _flush(START + WEEK + DAY),
        WITHDRAW,
        {**AGREE, "groups": ["look"]},
        {**AGAIN, "groups": ["look"]},
    ],
    "ceilings are lowered by a later plan, raised by renewed consent, and not by agreeing": [
        *OPENED,
        _record("colour"),
        CLOSE,
        _open(START + HOUR, plan="narrow"),
        AGREE,
        _record("colour", START + HOUR),
        _flush(START + 8 * DAY),
        CLOSE,
        _open(START + 9 * DAY),
        _record("colour", START + 9 * DAY),
        _record("twice", START + 9 * DAY),
        {"do": "renew"},
        _record("twice", START + 9 * DAY),
    ],
    "a ceiling lowered after recording keeps stronger levels": [
        *OPENED,
        _record("colour"),
        CLOSE,
        _open(START + HOUR, ceilings=[1_000_000, 24_000_000]),
        _flush(START + DAY + 3 * HOUR),
        _flush(START + 8 * DAY),
    ],
    "a plan that expires": [
        _open(plan="soon"),
        AGREE,
        _record("colour"),
        _flush(START + DAY + 3 * HOUR),
        _flush(EXPIRY - 1),
        _record("colour", EXPIRY - 1),
        _flush(EXPIRY),
        _record("colour", EXPIRY),
    ],
    "a full outbox refuses, and charges nothing": [
        *OPENED,
        _record("colour"),
        {"do": "full"},
        _record("twice"),
        _record("colour"),
    ],
    "a clock that is set back stays in the period, at its beginning": [
        _open(START + WEEK),
        AGREE,
        _record("colour", START + WEEK),
        _record("twice", START),
        _record("colour", START),
        _record("colour", START + 2 * WEEK),
    ],
    "periods that were left out are not made up for": [
        *OPENED,
        _record("colour"),
        _record("colour", START + 10 * WEEK),
    ],
    "a store belongs to one collector": [*OPENED, CLOSE, _open(plan="other"), _open()],
}

OUTBOX: dict[str, list[Step]] = {
    "due times: truncated, one resolution later, jittered alike": [
        *OPENED,
        _record("colour"),
        _record("twice", START + 40 * 60_000),
        _record("twice", START + 3 * HOUR),
    ],
    "a message has one pseudonym and plan, groups by metric, rows in the order of due time": [
        *OPENED,
        _record("twice", START + HOUR),
        _record("colour", START),
        _record("twice", START),
        _flush(START + 4 * HOUR),
    ],
    "two periods are two messages, the older one first": [
        *OPENED,
        _record("colour"),
        _record("colour", START + WEEK),
        _flush(START + WEEK + 3 * HOUR),
    ],
    "what was refused is sent again, byte for byte": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR, publisher="refuses"),
        _flush(START + 3 * HOUR, publisher="refuses"),
        _flush(START + 3 * HOUR),
    ],
    "what a newer level supersedes before it is delivered is left out": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR, publisher="refuses"),
        _flush(START + DAY + 3 * HOUR),
    ],
    "the second of two messages is refused": [
        *OPENED,
        _record("colour"),
        _record("colour", START + WEEK),
        _flush(START + WEEK + 3 * HOUR, publisher=1),
        _flush(START + WEEK + 3 * HOUR),
    ],
    "pseudonyms go one at a time; the others rest, and a refusal does not end the rest": [
        *OPENED,
        _record("colour"),
        _record("twice", START + WEEK),
        _round(START + WEEK + 4 * HOUR, 1),
        _round(START + WEEK + 4 * HOUR + 1, 0),
        _round(START + WEEK + 4 * HOUR + HOUR // 2, 0, publisher="refuses"),
        _round(START + WEEK + 4 * HOUR + HOUR // 2 + 1, 0),
    ],
    "the most urgent pseudonym goes first, and the rest of the others is short": [
        _open(age=6 * HOUR),
        AGREE,
        _record("twice", START + 5 * DAY - HOUR),
        _record("twice", START + 5 * DAY + HOUR // 2),
        _round(START + 5 * DAY + 5 * HOUR, 1, (9, 10)),
        _round(START + 5 * DAY + 5 * HOUR + 1, 1, (9, 10)),
        _round(START + 5 * DAY + 6 * HOUR, 1, (9, 10)),
    ],
    "what would not be late yet is sent": [*OPENED, _record("twice"), _flush(LAST)],
    "what would be refused as late lapses": [*OPENED, _record("twice"), _flush(LAST + 1)],
    "what could not be delivered for too long lapses": [
        _open(age=2 * DAY),
        AGREE,
        _record("twice"),
        _flush(START + 2 * DAY, publisher="refuses"),
        _flush(START + 3 * DAY),
    ],
    "a clock that was set back sends no level twice": [
        *OPENED,
        _record("colour"),
        _flush(START + DAY + 3 * HOUR, publisher="refuses"),
        _flush(START + 3 * HOUR),
        _flush(START + DAY + 4 * HOUR),
    ],
    "signed messages": [
        _open(plan="signed"),
        AGREE,
        _record("colour"),
        _record("colour", START + WEEK),
        _flush(START + WEEK + DAY + 3 * HOUR),
    ],
    "nothing is sent without consent": [
        *OPENED,
        _record("colour"),
        WITHDRAW,
        _flush(START + 3 * HOUR),
    ],
}

_COPY: Step = {"do": "copy", "to": "copy"}


def _restore(what: str) -> Step:
    return {"do": "restore", "what": what, "from": "copy"}


def _lose(what: str) -> Step:
    return {"do": "lose", "what": what}


GUARD: dict[str, list[Step]] = {
    "it dies while it draws: nothing is recorded": [
        *OPENED,
        _record("colour", **{"dies after draws": 2}),
        _open(),
        _record("colour"),
    ],
    "it dies between the commit that charges and the guard: nothing is sent, and all is charged": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR, **{"dies before the guard": True}),
        _open(START + 3 * HOUR),
        _flush(START + 3 * HOUR),
    ],
    "it dies after the charge and before the first byte: the same bytes are sent later": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR, publisher="dies before"),
        _open(START + 3 * HOUR),
        _flush(START + 3 * HOUR),
    ],
    "it dies after the delivery: the same bytes are sent once more": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR, publisher="dies after"),
        _open(START + 3 * HOUR),
        _flush(START + 3 * HOUR),
    ],
    "an older copy of the state file: the period is full, consent is asked for again": [
        *OPENED,
        _record("colour"),
        CLOSE,
        _COPY,
        _open(START + HOUR),
        _record("twice", START + HOUR),
        _flush(START + 4 * HOUR),
        CLOSE,
        _restore("state"),
        _open(START + 5 * HOUR),
        AGAIN,
        _record("twice", START + 5 * HOUR),
        _record("twice", START + WEEK),
    ],
    "an older copy, since which one flush has sent something": [
        *OPENED,
        _record("colour"),
        _COPY,
        _flush(START + 3 * HOUR),
        CLOSE,
        _restore("state"),
        _open(START + 4 * HOUR),
    ],
    "an older copy of a device that had sent before": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR),
        _COPY,
        _flush(START + 2 * DAY),
        CLOSE,
        _restore("state"),
        _open(START + 2 * DAY),
    ],
    "an older copy that has not been sent from since: nothing is lost": [
        *OPENED,
        CLOSE,
        _COPY,
        _restore("state"),
        _open(START + HOUR),
        _record("colour", START + HOUR),
    ],
    "a state file that is lost": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR),
        CLOSE,
        _lose("state"),
        _open(START + 4 * HOUR),
        AGREE,
        _record("colour", START + 4 * HOUR),
        _record("colour", START + WEEK),
    ],
    "a state file that is lost: turns begin with the next cycle": [
        _open(START + WEEK),
        AGREE,
        _flush(START + WEEK),
        CLOSE,
        _lose("state"),
        _open(START + WEEK + HOUR),
        AGREE,
        *[_record("seldom", START + weeks * WEEK) for weeks in range(2, 7)],
    ],
    "a guard that is lost": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR),
        CLOSE,
        _lose("guard"),
        _open(START + 4 * HOUR),
        AGAIN,
        _record("twice", START + 4 * HOUR),
        _record("twice", START + WEEK),
    ],
    "a state file that is damaged": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR),
        CLOSE,
        {"do": "damage", "what": "state"},
        _open(START + 4 * HOUR),
        AGREE,
        _record("colour", START + WEEK),
    ],
    "a guard that is damaged": [
        *OPENED,
        _record("colour"),
        _flush(START + 3 * HOUR),
        CLOSE,
        {"do": "damage", "what": "guard"},
        _open(START + 4 * HOUR),
        AGAIN,
        _record("colour", START + WEEK),
    ],
    "both lost: a new device": [
        *OPENED,
        _record("colour"),
        CLOSE,
        _lose("everything"),
        _open(START + HOUR),
        AGREE,
        _record("colour", START + HOUR),
    ],
    "a withdrawal outlives an older copy of the state file": [
        *OPENED,
        _record("colour"),
        CLOSE,
        _COPY,
        _open(START + HOUR),
        WITHDRAW,
        CLOSE,
        _restore("state"),
        _open(START + 2 * HOUR),
        AGREE,
        AGAIN,
    ],
}

FILES: dict[str, tuple[str, dict[str, list[Step]]]] = {
    "ledger": ("What is recorded, reserved and spent, call by call", LEDGER),
    "outbox": ("When and as which bytes reports leave, call by call", OUTBOX),
    "guard": ("What holds after the process died, or files were lost or replaced", GUARD),
}


def write(name: str) -> None:
    description, cases = FILES[name]
    made = [
        {"name": case, "steps": scenarios.run(steps, write=True)} for case, steps in cases.items()
    ]
    files.write(name, description, scenarios=made)
