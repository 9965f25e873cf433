"""A streaming pipeline comes to what a run comes to, whatever befalls it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest
import stream_engine
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from step_plans import DAY
from stream_engine import Engine
from streaming_logs import EPOCHS, Outcome, aggregated, records, small_plans, streamed, write

from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import Stepped
from pipelines.beam import counting, documents
from pipelines.beam.counting import LiveStates
from pipelines.beam.plans import PlansFolder
from pipelines.beam.stream import Stream
from pipelines.results.documents import PeriodDocument
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plans import StoredPlans

pytestmark = pytest.mark.slow

Events = list[tuple[str, int]]

#: Whatever is found is small enough, and making it smaller takes minutes.
PHASES = (Phase.explicit, Phase.generate)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 800)),
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
        events += [("read", 400)] * 6
        events += [
            ("deliver", 200),
            ("tick", source.choice([1_000, 20_000, 40_000])),
            source.choice([("checkpoint", 0), ("advance",)]),
        ]
        events += [("read", 800), ("deliver", 100), ("advance",)]
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
        patch.setattr("sotto.log.reader.BLOCK_BYTES", 200)
        yield


def happen(engine: Engine, events: Events) -> None:
    for what, *number in events:
        getattr(engine, what)(*number)


def outcome_of(engine: Engine) -> Outcome:
    """Return what somebody outside has of a finished pipeline; all of it is over.

    He may have more: a window whose only report was counted, before a rollback, in an earlier
    step than the one that revoked its sender, and after it in the same.
    """
    found = [each for name, each in engine.documents.items() if name not in engine.phantoms]
    periods = [each for each in found if isinstance(each, PeriodDocument)]
    assert all(each.period["closed"] for each in periods)
    for (stage, _), keyed in engine.keyed.items():
        if stage == "count":
            assert set(keyed.content) <= {"head"}
        if stage in ("windows", "periods"):
            assert set(keyed.content) <= {"emitted"}
    return streamed(found, engine.rejects)


def differences(epochs: str, events: Events, order: int) -> list[str]:
    """Return in what a pipeline to which this happens differs from a run."""
    folder = folder_of(epochs, 0)
    cache = 1 << 30 if order % 3 else 0
    stream = Stream("job", PlansFolder(str(folder / "plans")), cache=cache)
    sources = [EmbeddedLog(folder / "log")]
    rows = (5, 1_000)[order % 2]
    with small_pieces(rows), Engine(stream, sources, random.Random(order)) as engine:
        happen(engine, events)
        engine.finish()
        outcome, wanted = outcome_of(engine), aggregated(epochs, 0)
    return [name for name in wanted._fields if getattr(outcome, name) != getattr(wanted, name)]


@pytest.mark.parametrize("epochs", list(EPOCHS))
@settings(max_examples=8, deadline=None, phases=PHASES)
@given(events=EVENTS, order=st.integers(0, 2**32))
def test_it_comes_to_what_a_run_comes_to(epochs, events, order):
    assert differences(epochs, events, order) == []


@pytest.mark.parametrize("order", range(6))
def test_it_gets_on_and_falls_back(order):
    assert differences("epochs", any_events(random.Random(order)), order) == []


def use_any_live_state(patch: pytest.MonkeyPatch) -> None:
    """Use what is in memory whatever the engine's state says."""
    take = LiveStates.take

    def taken(live: LiveStates, period: int, shard: int, token: str) -> State | None:
        held = live._held.get((period, shard))
        return take(live, period, shard, held[0] if held and token else token)

    patch.setattr(LiveStates, "take", taken)


def keep_gathered(patch: pytest.MonkeyPatch) -> None:
    """Step rows again that were stepped, as if a bag had not been cleared."""
    step = counting._step

    def twice(state: State, rows: Iterable[Rows]) -> Stepped:
        given = list(rows)
        found, again = step(state, given), step(state, given)
        return found._replace(tally=found.tally.plus(again.tally))

    patch.setattr(counting, "_step", twice)


def fold_without_clearing(patch: pytest.MonkeyPatch) -> None:
    """Leave the rows of a log that has become a snapshot: from there on it has them twice."""
    clear = stream_engine._Cell.clear
    patch.setattr(stream_engine._Cell, "clear", lambda cell: cell._name == "log" or clear(cell))


def close_early(patch: pytest.MonkeyPatch) -> None:
    """Close a period at its end."""
    closing = counting.closing_time
    patch.setattr(counting, "closing_time", lambda *given: closing(*given) - 10 * DAY)


def count_revisions(patch: pytest.MonkeyPatch) -> None:
    """Number documents from the engine's state alone, which goes back."""
    patch.setattr(documents, "_revision", lambda before: before.revision + 1)


FAULTS = [use_any_live_state, keep_gathered, fold_without_clearing, close_early, count_revisions]


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_show(fault):
    """Nothing differs without a fault: see above, with the same events."""
    for order in range(6):
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            try:
                found = differences("epochs", any_events(random.Random(order)), order)
            except Exception as error:
                found = [repr(error)]
        if found:
            return
    pytest.fail("a fault did not show")
