"""What devices measure: the answer of each period, as sequences of calls, and the law of responses.

``docs/spec/protocol.md`` describes the file. The plans are such that a payload is the answer
itself, but for responses, which follow from the random bits of their steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from mechanisms.chains.symbols import SymbolChain
from sotto.plan.compiled import CompiledPlan
from tests.conformance import devices, files, scenarios
from tests.conformance.draws import samplers
from tests.conformance.steps import (
    AGAIN,
    AGREE,
    CLOSE,
    DAY,
    HOUR,
    START,
    WEEK,
    WITHDRAW,
    Step,
    flush,
    open_,
    record,
)

#: The first millisecond of the period after that of the start.
NEXT = 2889 * WEEK
OPENED = [open_(plan="measured"), AGREE]
USED = [open_(plan="used"), AGREE]


def count(at: int, times: int = 1, name: str = "export") -> Step:
    return {"do": "count", "name": name, "times": times, "at": at}


def use(at: int, times: int = 1) -> Step:
    return count(at, times, "open")


def _used_within(at: int) -> list[Step]:
    """Return a call in a step of the resolution, and a use after it."""
    return [flush(at), use(at)]


def reach(at: int, step: str) -> Step:
    return {"do": "reach", "metric": "checkout", "step": step, "at": at}


MEASURED: dict[str, list[Step]] = {
    "nothing is measured before consent": [
        open_(plan="measured"),
        count(START),
        AGREE,
        count(START + HOUR),
        flush(NEXT),
    ],
    "a count is in the bin that begins at the edge; what is below one adds nothing": [
        *OPENED,
        *[count(START + HOUR, times) for times in (0, -7, 1, 1, 2, 1, 4, 1, 1_000_000)],
        flush(NEXT - 1),
        flush(NEXT),
        flush(NEXT + 3 * HOUR),
    ],
    "a period without a use is answered with zero, one in which nothing ran is not": [
        *OPENED,
        flush(NEXT),
        flush(NEXT + 3 * HOUR),
        CLOSE,
        open_(NEXT + 4 * WEEK, plan="measured"),
    ],
    "an answer that is drawn too late for aggregators lapses": [
        *OPENED,
        count(NEXT + WEEK + DAY, 3),
        flush(NEXT + WEEK + DAY),
    ],
    "each use is in one answer, of the period in which it was": [
        *OPENED,
        count(NEXT - 1, 3),
        count(NEXT),
        count(NEXT + WEEK - 1),
        flush(NEXT + WEEK),
        flush(NEXT + 2 * WEEK),
    ],
    "days are those of UTC, and each counts once": [
        *OPENED,
        count(NEXT - 4 * DAY - 1),
        count(NEXT - 4 * DAY),
        count(NEXT - 3 * DAY - 1, 5),
        flush(NEXT - 2 * DAY),
        count(NEXT - 1, 0),
        flush(NEXT),
    ],
    "the furthest step is kept, whatever comes after it": [
        *OPENED,
        reach(START, "no step of the plan"),
        reach(START, "address"),
        reach(START, "cart"),
        flush(NEXT),
        reach(NEXT, "paid"),
        flush(NEXT + WEEK),
    ],
    "an age is answered at the first use in a period, and counts from the first of all": [
        open_(NEXT, plan="measured"),
        AGREE,
        *[flush(NEXT + weeks * WEEK) for weeks in (1, 2, 5)],
    ],
    "the largest, smallest, last and sum of what was recorded; a last value can be missing": [
        *OPENED,
        record("load", START, 12),
        record("load", START, 3.5),
        record("load", START, 25),
        record("load", START, {"number": "nan"}),
        record("load", START, -30),
        record("state", START, 15),
        flush(NEXT),
        record("state", NEXT, 15),
        record("state", NEXT, None),
        flush(NEXT + WEEK),
    ],
    "what is measured outlives the process": [
        *OPENED,
        count(START, 2),
        record("load", START, 15),
        CLOSE,
        open_(START + DAY, plan="measured"),
        count(START + DAY, 3),
        CLOSE,
        open_(NEXT + HOUR, plan="measured"),
    ],
    "a clock that is set back counts in the ledger's period, on its first day or on none": [
        open_(NEXT, plan="measured"),
        AGREE,
        count(NEXT - HOUR),
        count(NEXT + DAY),
        count(NEXT - HOUR),
        flush(NEXT + WEEK),
    ],
    "a clock that goes back further drops what was measured in periods that have not come": [
        open_(NEXT + 3 * WEEK, plan="measured"),
        AGREE,
        count(NEXT + 3 * WEEK, 4),
        count(START),
        flush(NEXT),
        flush(NEXT + 3 * WEEK),
    ],
    "a withdrawal drops what was measured; the period is not measured again": [
        *OPENED,
        count(START, 4),
        WITHDRAW,
        AGAIN,
        count(START + HOUR),
        flush(NEXT),
        flush(NEXT + WEEK),
    ],
    "a ceiling: measures are charged in the order of the plan": [
        open_(plan="measured", ceilings=[60_000_000, 9_000_000_000]),
        AGREE,
        count(START),
        record("load", START, 12),
        flush(NEXT),
    ],
}

RESPONSES: dict[str, list[Step]] = {
    "without a use the response is one to no, and is only written again": [
        *USED,
        flush(START + HOUR),
        flush(START + 2 * HOUR),
        flush(NEXT),
        flush(NEXT + 3 * HOUR),
    ],
    "after a use it is drawn anew in the next step, at most once a process and period": [
        *USED,
        use(START, 0),
        flush(START + HOUR),
        use(START + HOUR),
        flush(START + HOUR + 1),
        *[step for hour in range(2, 8) for step in _used_within(START + hour * HOUR)],
        CLOSE,
        open_(START + 8 * HOUR, plan="used"),
        *[step for hour in range(8, 12) for step in _used_within(START + hour * HOUR)],
        flush(NEXT),
        flush(NEXT + 3 * HOUR),
        flush(NEXT + DAY + 3 * HOUR),
    ],
    "closing draws it anew as well": [
        *USED,
        use(START),
        CLOSE,
        open_(START, plan="used"),
        flush(NEXT),
    ],
    "a use that was not written in its period is lost, and is in no other answer": [
        *USED,
        use(NEXT - 1),
        flush(NEXT),
        flush(NEXT + HOUR),
        flush(NEXT + WEEK),
        use(NEXT + 2 * WEEK - 1),
        flush(NEXT + 2 * WEEK),
    ],
    "a use before a withdrawal is lost": [
        *USED,
        use(START),
        WITHDRAW,
        use(START),
        AGAIN,
        flush(NEXT),
        flush(NEXT + HOUR),
    ],
    "a clock that is set back counts in the ledger's period": [
        open_(NEXT, plan="used"),
        AGREE,
        use(NEXT - HOUR),
        flush(NEXT + HOUR),
        flush(NEXT + WEEK),
    ],
}


def _laws() -> Iterator[dict[str, Any]]:
    """Yield the chance of *yes* of the response and of each report drawn from it, as the SDK's."""
    chain = CompiledPlan.from_json(files.plan("used")).metric("opened").mechanism.chain
    assert isinstance(chain, SymbolChain)
    levels = range(chain.levels)
    for used in (False, True):
        chances = [chain.law(used, level)[1] for level in levels]
        scaled = [
            chance * (1 << 64 * (chain.levels - level)) for level, chance in enumerate(chances)
        ]
        assert all(each.denominator == 1 for each in scaled)
        yield {"metric": "opened", "used": used, "yes": [str(each) for each in scaled]}


def _law_of_page(used: bool) -> list[str]:
    """Return the same by the integers of ``samplers.json`` alone."""
    yes, found = Fraction(used), []
    for draw in samplers("used")["opened"]["chain"]["draws"]:
        yes = yes * int(draw["keep"]) + (1 - yes) * int(draw["other"])
        yes /= 1 << 64
        found.insert(0, str(yes * (1 << 64 * (len(found) + 1))))
    return found


def write() -> None:
    files.write(
        "measures",
        "What a device measures and answers, call by call; and the chances of yes of the measure "
        "used",
        scenarios=devices.made(MEASURED | RESPONSES),
        laws=list(_laws()),
    )


def check() -> Iterator[str | None]:
    yield from scenarios.check("measures")
    laws = files.read("measures")["laws"]
    for each, ours in zip(laws, _laws(), strict=True):
        good = each == ours and each["yes"] == _law_of_page(each["used"])
        yield None if good else f"the law of {json.dumps(each)} is {json.dumps(ours)}"
