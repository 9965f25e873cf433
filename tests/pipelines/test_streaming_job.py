"""A streaming pipeline comes to what a drain comes to, whatever befalls it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from stream_engine import Engine
from streaming_logs import EPOCHS, Outcome, drained, records, small_plans, streamed, write

from pipelines.beam import counting
from pipelines.beam.partitions import LogPartitions
from pipelines.beam.plans import PlansFolder
from pipelines.beam.stream import Stream
from pipelines.published import PeriodDocument
from pipelines.storedplans import StoredPlans

Events = list[tuple[str, int]]

#: Whatever is found is small enough, and making it smaller takes minutes.
PHASES = (Phase.explicit, Phase.generate)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 3_000)),
        st.tuples(st.just("deliver"), st.integers(1, 40)),
        st.tuples(st.just("tick"), st.sampled_from([1, 700, 3_000, 40_000])),
        st.tuples(st.sampled_from(["advance", "discover"])),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("roll_back"), st.integers(1, 3)),
        st.tuples(st.just("crash"), st.integers(0, 30)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
        st.tuples(st.just("rescale"), st.integers(1, 3)),
    ),
    min_size=10,
    max_size=80,
)


def any_events(source: random.Random) -> Events:
    """Return events among which a pipeline gets on, and falls back again and again."""
    events: list[tuple[object, ...]] = [("discover",)]
    for _ in range(8):
        events += [("read", 3_000)] * 4
        events += [
            ("deliver", 200),
            ("tick", source.choice([1_000, 20_000, 40_000])),
            source.choice([("checkpoint", 0), ("advance",)]),
        ]
        events += [("read", 3_000), ("deliver", 100), ("advance",)]
        events += [
            source.choice(
                [
                    ("roll_back", 1),
                    ("rescale", source.randint(1, 2)),
                    ("crash", source.randint(0, 30)),
                    ("tick", 1),
                ]
            )
        ]
    return events  # type: ignore[return-value]


@lru_cache
def folder_of(epochs: str, seed: int) -> Path:
    """Return a folder with a log and plans."""
    folder = Path(tempfile.mkdtemp(prefix="sotto-test-"))
    write(folder / "log", records(epochs, seed))
    (folder / "plans").mkdir()
    StoredPlans(folder / "plans").keep(small_plans(), {})
    return folder


@contextmanager
def small_pieces(rows: int) -> Iterator[None]:
    """Let logs be folded, and rows be stepped, although there are few; read few at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "SHORT", 400)
        patch.setattr(counting, "ROWS", rows)
        patch.setattr("sotto.logreader.BLOCK_BYTES", 1_000)
        yield


def happen(engine: Engine, events: Events) -> None:
    for what, *number in events:
        getattr(engine, what)(*number)


def outcome_of(engine: Engine) -> Outcome:
    """Return what somebody outside has of a finished pipeline; all of it is over."""
    periods = [each for each in engine.documents.values() if isinstance(each, PeriodDocument)]
    assert all(each.period["closed"] for each in periods)
    for (stage, _), keyed in engine.keyed.items():
        if stage == "count":
            assert set(keyed.content) == {"head"}
        if stage in ("windows", "periods"):
            assert set(keyed.content) == {"told"}
    return streamed(engine.documents.values(), engine.rejects)


def differences(epochs: str, events: Events, order: int) -> list[str]:
    """Return in what a pipeline to which this happens differs from a drain."""
    folder = folder_of(epochs, 0)
    cache = 1 << 30 if order % 3 else 0
    stream = Stream("job", PlansFolder(str(folder / "plans")), cache=cache)
    sources = [LogPartitions(str(folder / "log"))]
    rows = (5, 1_000)[order % 2]
    with small_pieces(rows), Engine(stream, sources, random.Random(order)) as engine:
        happen(engine, events)
        engine.finish()
        outcome, wanted = outcome_of(engine), drained(epochs, 0)
    return [name for name in wanted._fields if getattr(outcome, name) != getattr(wanted, name)]


@pytest.mark.parametrize("order", range(4))
def test_nothing_happens(order: int) -> None:
    assert differences("epochs", [], order) == []


@pytest.mark.parametrize("epochs", list(EPOCHS))
@settings(max_examples=15, deadline=None, phases=PHASES)
@given(events=EVENTS, order=st.integers(0, 2**32))
def test_it_comes_to_what_a_drain_comes_to(epochs: str, events: Events, order: int) -> None:
    assert differences(epochs, events, order) == []


@pytest.mark.parametrize("order", range(20))
def test_it_gets_on_and_falls_back(order: int) -> None:
    assert differences("epochs", any_events(random.Random(order)), order) == []
