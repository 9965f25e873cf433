"""A streaming job comes to what a drain comes to, whatever befalls it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import pytest
from drain_logs import START
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from step_plans import DAY
from streaming_logs import EPOCHS, Logs, Outcome, deployment, drained, records, streamed
from streaming_runner import Runner

from pipelines.state import State
from pipelines.streaming import journal
from pipelines.streaming.journal import Journal, LiveStates
from pipelines.streaming.shards import ShardKeeper

Events = list[tuple[str, int]]

#: Whatever is found is small enough, and making it smaller takes minutes.
PHASES = (Phase.explicit, Phase.generate)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 60)),
        st.tuples(st.just("deliver"), st.integers(1, 40)),
        st.tuples(st.just("tick"), st.sampled_from([1, 700, 3_000])),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("roll_back"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    min_size=10,
    max_size=60,
)


def any_events(source: random.Random) -> Events:
    """Return events among which a job gets on, and falls back again and again."""
    events: Events = []
    for _ in range(8):
        events += [("read", source.randint(5, 40)) for _ in range(3)]
        events += [
            ("tick", 1_000),
            ("deliver", 200),
            source.choice([("checkpoint", 0), ("tick", 1)]),
        ]
        events += [("read", source.randint(5, 40)), ("tick", 1_000), ("deliver", 100)]
        events += [
            source.choice([("roll_back", 1), ("rescale", source.randint(1, 2)), ("tick", 1)])
        ]
    return events


@contextmanager
def small_pieces() -> Iterator[None]:
    """Let logs be folded, and snapshots cut, although little is in them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "SHORT", 400)
        patch.setattr(journal, "PIECE", 300)
        yield


def happen(runner: Runner, events: Events) -> None:
    for what, number in events:
        if what == "read":
            runner.read(runner.random.choice(runner.deployment.lanes), number)
        elif what == "checkpoint":
            runner.checkpoint()
        else:
            getattr(runner, what)(number)


def differences(epochs: str, events: Events, order: int) -> list[str]:
    """Return in what a job to which this happens differs from a drain."""
    cache = 1 << 30 if order % 3 else 0
    settings = deployment(epochs, cache=cache, rows=(5, 30)[order % 2])
    runner = Runner(settings, records(epochs, 0), random.Random(order))
    with small_pieces():
        happen(runner, events)
        runner.finish()
    outcome, wanted = streamed(runner), drained(epochs, 0)
    return [name for name in wanted._fields if getattr(outcome, name) != getattr(wanted, name)]


@pytest.mark.slow
@pytest.mark.parametrize("epochs", list(EPOCHS))
@settings(max_examples=15, deadline=None, phases=PHASES)
@given(events=EVENTS, order=st.integers(0, 2**32))
def test_a_job_comes_to_what_a_drain_comes_to(epochs: str, events: Events, order: int) -> None:
    assert differences(epochs, events, order) == []


@lru_cache
def undisturbed() -> Outcome:
    """Return what becomes of the reports of the first weeks, before any period is closed."""
    runner = Runner(deployment("two"), first_weeks(), random.Random(0))
    runner.finish()
    return streamed(runner)


def first_weeks() -> Logs:
    logs = records("two", 0).items()
    return {lane: [r for r in content if r.timestamp < START + 18 * DAY] for lane, content in logs}


@settings(max_examples=5, deadline=None, phases=PHASES)
@given(events=EVENTS, order=st.integers(0, 2**32))
def test_it_does_not_matter_where_a_report_comes_from(events: Events, order: int) -> None:
    """Some messages go to wrong partitions, and all are given back at some time or other."""
    source = random.Random(order)
    told = deployment("two", requeue="reports-requeue", requeue_partitions=2)
    logs: Logs = {lane: [] for lane in told.lanes}
    for lane, content in first_weeks().items():
        for record in content:
            strays = source.random() < 0.1
            logs[source.choice(told.lanes[:2]) if strays else lane].append(record)
            logs[source.choice(told.lanes[2:])].append(record._replace(appended=False))
    for lane in told.lanes:
        # What is given back comes in any order.
        source.shuffle(logs[lane]) if lane.topic == told.requeue else logs[lane].sort()
    runner = Runner(told, logs, source)
    with small_pieces():
        happen(runner, events)
        runner.finish()
    outcome, wanted = streamed(runner), undisturbed()
    assert outcome[:3] == wanted[:3]
    for fate in ("counted", "superseded", "revoked"):
        assert outcome.fates[fate] == wanted.fates[fate]
    assert outcome.fates["duplicates"] > wanted.fates["reports"] / 2


def use_any_live_state(patch: pytest.MonkeyPatch) -> None:
    """Use what is in memory whatever keyed state says."""

    def take(live: LiveStates, shard: int, period: int, token: bytes) -> State | None:
        held = live._held.get((shard, period))
        return held[1] if held else None

    patch.setattr(LiveStates, "take", take)


def forget_logs(patch: pytest.MonkeyPatch) -> None:
    """Make a state again from its snapshot alone."""
    restored = Journal._restored
    patch.setattr(
        Journal,
        "_restored",
        lambda self, shard, period, head, registry: restored(
            self, shard, period, head._replace(entries=0), registry
        ),
    )


def keep_tokens(patch: pytest.MonkeyPatch) -> None:
    """Draw no new token for a state that has changed."""
    patch.setattr("pipelines.streaming.journal.secrets.token_bytes", bytes)


def flush_twice(patch: pytest.MonkeyPatch) -> None:
    """Send the changes of some flushes again."""
    flush = ShardKeeper._flush

    def twice(keeper: ShardKeeper, shard: int) -> Iterator[object]:
        sent = list(flush(keeper, shard))
        yield from sent + sent[:1] * (len(sent) > 3)

    patch.setattr(ShardKeeper, "_flush", twice)


def leave_the_buffer(patch: pytest.MonkeyPatch) -> None:
    """Close periods without taking first what waits."""
    close = ShardKeeper._close

    def at_once(keeper: ShardKeeper, shard: int, first_open: int) -> Iterator[object]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ShardKeeper, "_flush", lambda self, shard: iter(()))
            yield from list(close(keeper, shard, first_open))

    patch.setattr(ShardKeeper, "_close", at_once)


def close_early(patch: pytest.MonkeyPatch) -> None:
    """Let time pass as in the fastest lane."""
    patch.setattr("pipelines.streaming.shards.min", max, raising=False)


def times_as_they_are(patch: pytest.MonkeyPatch) -> None:
    """Let append times fall."""
    patch.setattr("pipelines.streaming.clock.max", lambda clock, time: time, raising=False)


def count_revisions(patch: pytest.MonkeyPatch) -> None:
    """Number documents from keyed state alone."""
    patch.setattr("pipelines.streaming.windows.max", _only_revisions, raising=False)


def _only_revisions(*numbers: int) -> int:
    return numbers[0] if len(numbers) == 2 and numbers[1] > 10**12 > numbers[0] else max(numbers)


FAULTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    use_any_live_state,
    forget_logs,
    keep_tokens,
    flush_twice,
    leave_the_buffer,
    close_early,
    times_as_they_are,
    count_revisions,
]


@lru_cache
def sound(order: int) -> bool:
    """Say whether a job that has no fault comes to what a drain comes to."""
    return differences("epochs", any_events(random.Random(order)), order) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_show(fault: Callable[[pytest.MonkeyPatch], None]) -> None:
    for order in range(1, 20):
        events = any_events(random.Random(order))
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            try:
                found = differences("epochs", events, order)
            except Exception as error:
                found = [repr(error)]
        assert sound(order)
        if found:
            return
    pytest.fail("a fault did not show")
