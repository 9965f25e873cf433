"""Shards of a streaming job: when they take what waits, what is late, plans, and poison."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from drain_logs import START, Device, Sent
from hypothesis import given, settings
from hypothesis import strategies as st
from step_plans import DAY
from streaming_logs import (
    deployment,
    drained,
    honest,
    records,
    shard_said,
    small_plans,
    streamed,
)
from streaming_runner import Record, Runner

from pipelines.published import HealthDocument, PeriodDocument, RejectsDocument
from pipelines.quarantine import numbers
from pipelines.streaming import batches
from pipelines.streaming.deployment import Deployment, Lane
from pipelines.streaming.letters import Port
from sotto.errors import PlanError
from sotto.registry import Registry

BACK = Lane("reports-requeue", 0)


def runner(told: Deployment, sent: list[Sent], back: list[Sent] = []) -> Runner:  # noqa: B006
    logs: dict[Lane, list[Record]] = {lane: [] for lane in told.lanes}
    for append, message in sorted(sent):
        topic = told.topics[0]
        lane = Lane(str(topic), topic.partition(shard_said(message)))
        logs[lane].append(Record(append, message))
    if back:
        logs[BACK] = [Record(append, message, appended=False) for append, message in back]
    return Runner(told, logs, random.Random(1))


def stepped(job: Runner) -> int:
    """Return how many shards have states."""
    content = job.backend.content.items()
    return sum(bool(held.get("heads")) for (port, _), held in content if port == Port.SHARDS)


def waiting(job: Runner) -> int:
    """Return how many messages wait."""
    kept = [held.get("waiting", ()) for held in job.backend.content.values()]
    return sum(batches.numbers(body)[0] for letters in kept for body in letters)


def only(job: Runner, kind: type) -> object:
    (found,) = (each for each in job.documents.values() if isinstance(each, kind))
    return found


def test_rows_wait_until_there_are_enough() -> None:
    sent = honest(40, 1, seed=2)
    job = runner(deployment("two", rows=10**6), sent)
    job.read(job.deployment.lanes[0], 10**6)
    job.deliver()
    assert (stepped(job), waiting(job)) == (0, len(job.logs[job.deployment.lanes[0]]))
    job = runner(deployment("two", rows=5), sent)
    job.read(job.deployment.lanes[0], 10**6)
    job.deliver()
    assert stepped(job) == 2
    assert waiting(job) < 10


def test_rows_wait_no_longer_than_they_may() -> None:
    job = runner(deployment("two", rows=10**6, linger=1_000), honest(9, 1, seed=2))
    for number in (1, 3):
        for lane in job.deployment.lanes:
            job.read(lane, number)
        # The first tick with a clock takes what waits, too.
        job.tick(0)
        job.deliver()
    assert waiting(job) == 6
    job.tick(999)
    job.deliver()
    assert waiting(job) == 6
    job.tick(1)
    job.deliver()
    assert waiting(job) == 0


def test_many_bytes_do_not_wait() -> None:
    job = runner(deployment("two", rows=10**6), [Sent(START + k, bytes(300_000)) for k in range(4)])
    job.read(job.deployment.lanes[0], 4)
    job.deliver()
    assert numbers(job.rejects) == {"malformed": 4}


def closing(lanes: int = 2) -> list[Sent]:
    """Return messages that say in two lanes that a year has passed."""
    device = [Device(small_plans()[0], random.Random(seed)) for seed in range(40)]
    colour = small_plans()[0].metric("colour")
    later = [each.chain(colour, START + 360 * DAY, upto=1)[0] for each in device]
    by_lane = {shard_said(one.message) % lanes: one for one in later}
    assert len(by_lane) == lanes
    return list(by_lane.values())


def test_what_is_given_back_of_a_closed_period_is_late() -> None:
    device = Device(small_plans()[0], random.Random(7))
    sent = device.chain(small_plans()[0].metric("colour"), START)
    told = deployment("two", requeue=BACK.topic)
    open_ = runner(told, sent[:1], back=sent)
    open_.finish()
    health = only(open_, HealthDocument).health  # type: ignore[attr-defined]
    assert (health["counted"], health["duplicates"]) == (1, 1)
    job = runner(told, sent[:1] + closing(), back=sent)
    for lane in told.lanes[:2]:
        job.read(lane, 99)
    for _ in range(3):
        job.deliver()
        job.tick(1_000)
    assert stepped(job) == 2
    job.finish()
    assert only(job, RejectsDocument).rejects == {"late": len(sent)}  # type: ignore[attr-defined]
    health = only(job, HealthDocument).health  # type: ignore[attr-defined]
    assert (health["counted"], health["duplicates"], health["chains"]) == (3, 0, 2)


def test_given_back_twice_changes_nothing() -> None:
    sent = honest(5, 1, seed=4)
    told = deployment("two", requeue=BACK.topic)
    once, twice = runner(told, sent), runner(told, sent[::2], back=sent + sent)
    once.finish()
    twice.finish()
    one, other = streamed(once), streamed(twice)
    assert (one.windows, one.estimates, one.periods) == (
        other.windows,
        other.estimates,
        other.periods,
    )


def test_a_shard_waits_for_all_its_lanes_and_is_closed_once() -> None:
    sent = honest(5, 1, seed=4)
    told = deployment("two")
    job = runner(told, sent + closing()[:1])
    job.finish()
    closed = [each for each in job.documents.values() if isinstance(each, PeriodDocument)]
    assert not any(each.period["closed"] for each in closed)
    before = len(job.backend.content[Port.BOOKS, 0]["periods"])
    assert before > 1
    job = runner(told, sent + closing())
    job.finish()
    told_of = [each for each in job.panes if isinstance(each, PeriodDocument)]
    first = [each.period["closed"] for each in told_of if each.period["period_start"] <= START]
    assert first.count(True) == 1
    assert first[-1]


def test_more_plans_are_taken_on_and_what_was_unknown_is_counted_when_given_back() -> None:
    first, second = small_plans()
    logs = records("two", 0)
    former = replace(deployment("two"), registry=Registry([first]), requeue=BACK.topic)
    job = Runner(former, logs, random.Random(3))
    for lane in former.lanes:
        job.read(lane, 15)
    job.deliver()
    job.tick(3_000)
    job.checkpoint()
    unknown = [each for each in job.rejects if each.reason.label == "unknown_plan"]
    known = [each for each in unknown if each.message[8:40] == second.fingerprint]
    assert known
    job.deployment = replace(former, registry=Registry([second, first]))
    job.processes = [job.process()]
    job.logs[BACK] = [Record(each.append, each.message, appended=False) for each in known]
    job.finish()
    outcome, wanted = streamed(job), drained("two", 0)
    assert outcome.windows == wanted.windows
    assert outcome.estimates == wanted.estimates
    assert outcome.periods == wanted.periods


def test_fewer_plans_are_refused_at_the_first_tick() -> None:
    job = Runner(deployment("two"), records("two", 0), random.Random(3))
    job.tick(1)
    job.deliver()
    first, _ = small_plans()
    job.deployment = replace(job.deployment, registry=Registry([first]))
    job.processes = [job.process()]
    job.tick(1)
    with pytest.raises(PlanError, match="plans that are missing"):
        job.deliver()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 400),
    timestamps=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
)
def test_poison_never_stops_a_job(
    seed: int, edits: list[tuple[int, int]], cut: int, timestamps: list[int]
) -> None:
    source = random.Random(seed)
    messages = [one.message for one in honest(1, 1, seed=seed % 5)]
    message = bytearray(source.choice(messages) if messages else b"")
    for at, value in edits:
        if message:
            message[at % len(message)] = value
    told = deployment("two", requeue=BACK.topic)
    lane = source.choice(told.lanes)
    content = [Record(t, bytes(message[:cut]), appended=source.random() < 0.7) for t in timestamps]
    job = Runner(told, {lane: content}, source)
    job.finish()
    health = only(job, HealthDocument).health  # type: ignore[attr-defined]
    rejected = sum(only(job, RejectsDocument).rejects.values())  # type: ignore[attr-defined]
    assert rejected or health["reports"] or not timestamps
