"""Panels over many periods: what is estimated, how precisely, and what turns give away.

Devices are the SDK's own, with the operating system's randomness; only their clocks are played.
An attacker is given every message that was sent, and the truth about half of the devices to learn
from.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from device_plans import HOUR, START, WEEK, metric, plan, reports
from statistical import check_binomial, check_counts, check_variance

from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher, Outcome
from clientsdk.store import device_secrets
from clientsdk.testing import FakeClock
from mechanisms.planner.precision import precision
from mechanisms.planner.targets import Assumed

pytestmark = pytest.mark.slow

N = 5
CYCLES = 6
FLEET = 240
#: The probability of a yes; a week's share is near it.
SHARE = 0.3
LATE = metric(
    "late",
    type="boolean",
    mechanism={"name": "grr", "domain_size": 2},
    panel=N,
    window=WEEK,
    ladder=[(500_000, 0), (2_000_000, HOUR)],
)
PLAN = plan({key: value for key, value in LATE.items() if key not in ("domain", "outside")})


class Life(NamedTuple):
    """A device over all periods: its pseudonyms and true answers, by period of its turns."""

    turns: dict[int, bytes]
    answers: dict[int, bool]
    outcomes: Counter[Outcome]
    says: dict[int, bool]


def lived(number: int) -> Life:
    """Let a device answer in every period, with values that follow from its number."""
    clock, publisher = FakeClock(START), MemoryPublisher()
    rng = np.random.default_rng(number)
    outcomes: Counter[Outcome] = Counter()
    answers = {}
    with Client(
        PLAN, state=NO_LIFETIME_BOUND, publisher=publisher, clock=clock, background=False
    ) as client:
        client.give_consent()
        for period in range(N * CYCLES):
            clock.now = START + period * WEEK
            answers[period] = bool(rng.random() < SHARE)
            outcomes[client.record("late", answers[period])] += 1
            clock.advance(hours=4)
            assert client.flush().error is None
    last = [report for report in reports(publisher.messages) if report.level == 1]
    period = {report: (report.event - START) // WEEK for report in last}
    turns = {period[report]: report.pseudonym for report in last}
    says = {period[report]: report.payload == b"\1" for report in last}
    return Life(turns, answers, outcomes, says)


@pytest.fixture(scope="module")
def fleet() -> list[Life]:
    # Cycles are counted from the epoch: they begin with the test's first period.
    assert (START // WEEK) % N == 0
    return [lived(number) for number in range(FLEET)]


def test_every_device_answers_once_in_each_cycle(fleet: list[Life]) -> None:
    for life in fleet:
        assert sorted(period // N for period in life.turns) == list(range(CYCLES))
        assert life.outcomes == {Outcome.ACCEPTED: CYCLES, Outcome.NOT_IN_PANEL: (N - 1) * CYCLES}


def test_turns_come_equally_often_in_every_period(fleet: list[Life]) -> None:
    for cycle in range(CYCLES):
        seen = Counter(p % N for life in fleet for p in life.turns if p // N == cycle)
        check_counts([seen[place] for place in range(N)], [1 / N] * N, label=f"cycle {cycle}")


def test_the_fleet_s_estimates_are_as_precise_as_predicted(fleet: list[Life]) -> None:
    """A week's share beside the truth of those who had their turn, and beside that of all."""
    mechanism = PLAN.metrics[0].mechanism
    ((p, q),) = set(mechanism.exact(1))
    beside, of_all = [], []
    for period in range(N * CYCLES):
        turn = [life for life in fleet if period in life.turns]
        n = len(turn)
        estimate = (sum(life.says[period] for life in turn) / n - q) / (p - q)
        true = sum(life.answers[period] for life in turn) / n
        everyone = sum(life.answers[period] for life in fleet) / FLEET
        error = precision(mechanism, 1, Assumed(share=true)).standard_error(n)
        chance = everyone * (1 - everyone) / n * (1 - n / FLEET) * FLEET / (FLEET - 1)
        beside.append((estimate - true) / error)
        of_all.append((estimate - everyone) / math.hypot(error, math.sqrt(chance)))
    check_variance(beside, 1.0, label="beside those who answered")
    check_variance(of_all, 1.0, label="beside all")
    # Without what those who answered add by chance it would be too little: the check sees that.
    assert np.std(of_all) < 2


# Attacks by somebody who has every message.


def right_guesses(fleet: list[Life]) -> tuple[int, int]:
    """Return how often the next turn is guessed, and how often that was tried.

    For every turn the attacker guesses the place of the next one: whatever came most often after
    this place among the devices that he knows, and of all gaps the one that came most often.
    """
    known, asked = fleet[::2], fleet[1::2]
    after: dict[int, Counter[int]] = {place: Counter() for place in range(N)}
    for life in known:
        for now, then in steps(life):
            after[now][then] += 1
    guess = {place: max(range(N), key=seen.__getitem__) for place, seen in after.items()}
    found = [guess[now] == then for life in asked for now, then in steps(life)]
    return sum(found), len(found)


def steps(life: Life) -> list[tuple[int, int]]:
    """The places of a device's turns in one cycle and the next."""
    return list(itertools.pairwise([period % N for period in sorted(life.turns)]))


def right_joins(fleet: list[Life]) -> int:
    """Return how many pseudonyms of the last cycle are given the one of the first that is theirs.

    By the messages alone all are alike but for their turn; the attacker pairs them in the order of
    turn and pseudonym, which makes as many pairs within one place as can be.
    """
    first, last = (
        sorted(
            (period % N, pseudonym, number)
            for number, life in enumerate(fleet)
            for period, pseudonym in life.turns.items()
            if period // N == cycle
        )
        for cycle in (0, CYCLES - 1)
    )
    return sum(one[2] == other[2] for one, other in zip(first, last, strict=True))


def check_joins(right: int) -> None:
    """A random pairing has k or more right pairs with probability at most 1 / k!."""
    assert right < 13, f"{right} of {FLEET} pseudonyms joined"
    assert 1 / math.factorial(13) < 1e-9


def test_no_turn_tells_of_the_next_one(fleet: list[Life]) -> None:
    right, tried = right_guesses(fleet)
    assert tried == FLEET // 2 * (CYCLES - 1)
    # Exactly one in N guesses is right if they do not depend on the device's secret.
    check_binomial(right, tried, 1 / N, label="next turns")


def test_turns_do_not_join_pseudonyms(fleet: list[Life]) -> None:
    assert len({name for life in fleet for name in life.turns.values()}) == FLEET * CYCLES
    check_joins(right_joins(fleet))


def test_a_turn_that_stays_in_its_place_would_be_noticed(monkeypatch) -> None:
    """With slots that do not move, of which a secret alone decides, each check fails."""
    places: dict[bytes, int] = {}
    # By turns, for every place to be one of a device that the attacker knows.
    still = lambda secret, n, cycle: places.setdefault(secret, len(places)) % n  # noqa: E731
    monkeypatch.setattr(device_secrets, "slot", still)
    right, tried = right_guesses([lived(number) for number in range(40)])
    assert right == tried
    with pytest.raises(AssertionError):
        check_binomial(right, tried, 1 / N)
