"""A streaming pipeline in time: windows that are complete, periods that are over, what is late."""

from __future__ import annotations

import random
from ast import literal_eval
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fake_kafka import FakeCluster, FakePartition, install
from kafka import TopicPartition
from report_logs import START, Device, Sent, append, write
from step_plans import DAY, HOUR, category, plan
from stream_engine import AT_LAST, Engine
from streaming_logs import Outcome, honest, outcome_of_run, small_plans, streamed

from mechanisms.frozen import replace
from pipelines.aggregation.counts import WindowKey, pack_change
from pipelines.beam import plans, reading
from pipelines.beam.documents import WindowEstimates
from pipelines.beam.plans import PlansFolder
from pipelines.beam.stream import Stream, closing_time
from pipelines.results.documents import (
    Document,
    HealthDocument,
    RejectsDocument,
    WindowDocument,
    parse,
)
from pipelines.sources.base import ReportSource
from pipelines.sources.kafka import RequeueTopic
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plans import StoredPlans
from sotto.kafka.brokers import Broker
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason

pytestmark = pytest.mark.slow


class GivenBack(FakePartition):
    """Messages that an operator has given back: the only partition of a topic."""

    def extend(self, sent: Sequence[Sent]) -> None:
        for time, message in sent:
            self.append(time, message, kind=0)


@contextmanager
def running(
    folder: Path,
    sent: Sequence[Sent],
    known: Sequence[CompiledPlan],
    *,
    given: GivenBack | None = None,
    lanes: int = 2,
    now: int = AT_LAST,
    order: int = 0,
    **settings: int,
) -> Iterator[Engine]:
    write(folder / "log", list(sent), lanes)
    (folder / "plans").mkdir(exist_ok=True)
    StoredPlans(folder / "plans").keep(known, {})
    stream = Stream("job", PlansFolder(str(folder / "plans")), **settings)
    sources: list[ReportSource] = [EmbeddedLog(folder / "log")]
    with pytest.MonkeyPatch.context() as patch:
        if given is not None:
            cluster, name = FakeCluster("reports-e1-p1"), "reports-requeue"
            cluster.partitions[TopicPartition(name, 0)] = given
            cluster.ids[name], cluster.batch = "one", 3
            install(patch, cluster)
            sources.append(RequeueTopic(Broker("fake:9092"), name))
        patch.setattr("sotto.log.reader.BLOCK_BYTES", 200)
        with Engine(stream, sources, random.Random(order), now) as engine:
            yield engine


def test_a_window_is_published_a_batch_at_a_time(tmp_path):
    known = replace(plan(1, 4, category("colour", 3, 0.5)), minimum_reports=20)
    StoredPlans(tmp_path).keep([known], {})
    subject = WindowEstimates(Stream("job", PlansFolder(str(tmp_path))))
    key, published, found = WindowKey(known.fingerprint, 0, 0), "", []
    panes = ["early"] * 4 + ["on_time"] + ["late"] * 2
    for at, (reports, pane) in enumerate(zip((19, 20, 59, 80, 99, 101, 81), panes, strict=True), 1):
        total = pack_change(key, np.array([[reports, 0, 0, 0, 0]]))
        told, published = subject.documents(b"", total, at, pane, published, closed=False)
        (document,) = (parse(*each) for each in told)
        assert isinstance(document, WindowDocument)
        made_of = {each["n"] for each in document.estimates if each["value"] is not None}
        found.append((document.window["n"], made_of, document.window["complete"]))
    assert found == [
        (19, set(), False),
        (20, {20}, False),
        (59, {20}, False),
        (80, {80}, False),
        (99, {80}, True),
        (101, {101}, True),
        (81, set(), True),
    ]


def outcome_of(engine: Engine) -> Outcome:
    return streamed(engine.documents.values(), engine.rejects)


def windows_of(found: Sequence[Document]) -> dict[tuple[object, ...], int]:
    return {
        (each.window["version"], each.window["metric"], each.window["window_start"]): int(
            str(each.window["n"])
        )
        for each in found
        if isinstance(each, WindowDocument)
    }


def on_time(folder: Path, sent: Sequence[Sent]) -> dict[tuple[object, ...], int]:
    """Return how many reports of each window are in its document on time."""
    with running(folder, sent, small_plans(), linger=10 * DAY, every=10 * DAY) as engine:
        engine.discover()
        while any(engine.read_from(part, 200) for part in engine._partitions()):
            engine.advance()
        panes = [each for each in engine.panes if isinstance(each, WindowDocument)]
    return windows_of([each for each in panes if each.pane == "on_time"])


def timely(folder: Path, sent: Sequence[Sent], complete: int) -> dict[tuple[object, ...], int]:
    """Return how many of each window's reports a run finds that had come by then."""
    log = write(folder / "log", [one for one in sent if one.append < complete])
    found = outcome_of_run(log, folder / "state", small_plans())
    rows = [{name: literal_eval(value) for name, value in row} for row in found.windows]
    return {(row["version"], row["metric"], row["window_start"]): row["n"] for row in rows}


def test_a_document_on_time_has_all_timely_reports(tmp_path):
    sent = honest(8, 2, 1)
    documents = on_time(tmp_path / "stream", sent)
    (lag,) = {small_plans()[0].metric("speed").delays[-1] + HOUR + DAY}
    for number in (1, 3, 4, 8):
        # Windows of one day are complete the last delay, an hour and a day after their end.
        end = START - START % DAY + number * DAY
        for key, n in timely(tmp_path / str(number), sent, end + lag).items():
            _, metric, start = key
            if metric == "speed" and start == end - DAY:
                assert documents.get(key, 0) >= n


def rejected(engine: Engine) -> dict[str, int]:
    """Return the rejected reports by reason, as the pipeline's documents have them."""
    (found,) = (e for e in engine.documents.values() if isinstance(e, RejectsDocument))
    return dict(found.rejects)


def tally(engine: Engine, name: str) -> object:
    (found,) = (each for each in engine.documents.values() if isinstance(each, HealthDocument))
    return found.health[name]


@pytest.mark.parametrize("back", [False, True], ids=["by itself", "given back"])
@pytest.mark.parametrize("order", range(2))
def test_what_comes_after_a_period_is_over_is_late_and_changes_nothing(order, back, tmp_path):
    """A partition was idle, and gets records of a time that is over.

    They are late whether their shard had a state in that period or not.
    """
    sent = honest(3, 1, order)
    others = honest(8, 1, order + 100)
    given = GivenBack()
    with running(tmp_path, sent, small_plans(), given=given, order=order) as engine:
        engine.finish()
        before = outcome_of(engine)
        if back:
            given.extend(others)
        else:
            write(tmp_path / "log", others)
        engine.finish()
        after = outcome_of(engine)
        assert after[:3] == before[:3]
        assert tally(engine, "reports") == len(sent) + len(others)
        assert rejected(engine) == {"late": len(others)}
        late = [each for each in engine.rejects if each.reason is Reason.LATE]
    assert sum(each.rows for each in late) == len(others)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("order", range(2))
def test_it_does_not_matter_where_a_report_comes_from(order, anew, tmp_path):
    """All messages are given back at some time or other, some before they come by themselves.

    So it is also where all is counted anew, long after.
    """
    source = random.Random(order)
    sent = sorted(honest(5, 1, order))
    until = closing_time(2800, Registry(small_plans()))
    assert sent[-1].append < until
    given = GivenBack()
    given.extend(source.sample(sent, len(sent)))
    wanted = outcome_of_run(write(tmp_path / "aggregated", sent), tmp_path / "state", small_plans())
    with running(
        tmp_path,
        sent,
        small_plans(),
        given=given,
        order=order,
        now=AT_LAST if anew else until - DAY,
    ) as engine:
        engine.finish()
        found = outcome_of(engine)
    assert found[:3] == wanted[:3]
    assert found.fates["counted"] == wanted.fates["counted"]
    assert found.fates["duplicates"] == wanted.fates["duplicates"] + len(sent)


def later_plan(ceiling: float) -> CompiledPlan:
    return plan(3, ceiling, category("colour", 3, 0.5, 1, 1.5), category("age", 5, 0.5))


@pytest.mark.parametrize("ceiling", [2, 8])
@pytest.mark.parametrize("order", range(3))
def test_a_plan_that_comes_while_it_runs(ceiling, order, tmp_path):
    """Metrics are numbered anew; workers learn of the plan late, from rows that others decoded."""
    new = later_plan(ceiling)
    known = [small_plans()[0]]
    first = [one for one in honest_of(known[0], order) if one.append < START + 6 * DAY]
    more = [one for one in honest_of(known[0], order) if one.append >= START + 6 * DAY]
    more += [one._replace(append=max(one.append, START + 6 * DAY)) for one in honest_of(new, 9)]
    with running(tmp_path, first, known, order=order, linger=1_000) as engine:
        engine.rescale(3)
        engine.read_all()
        engine.settle(2_000)
        write(tmp_path / "aggregated", first)
        outcome_of_run(tmp_path / "aggregated", tmp_path / "state", known)
        for log in ("log", "aggregated"):
            write(tmp_path / log, more)
        wanted = outcome_of_run(tmp_path / "aggregated", tmp_path / "state", [*known, new])
        StoredPlans(tmp_path / "plans").keep([new], {})
        with pytest.MonkeyPatch.context() as patch:
            # No worker looks again unless it must, but the one that reads, which only reads.
            patch.setattr(plans, "LOOK_SECONDS", float("inf"))
            enter, reader = engine._enter, dict[str, object]()

            def entered(*address: object) -> object:
                process = enter(*address)
                if address[0] == "read":
                    plans._held = reader
                    plans._look(engine.stream.plans.path)
                return process

            patch.setattr(engine, "_enter", entered)
            engine.read_all()
            engine.settle(2_000)
            engine.checkpoint()
            engine.rescale(2)
            engine.finish()
        found = outcome_of(engine)
    assert {dict(row)["version"] for row in found.windows} == {"1", "3"}
    assert found[:3] == wanted[:3]


def honest_of(chosen: CompiledPlan, seed: int) -> list[Sent]:
    """Return what devices send, one of which spends more than the first plan lets it."""
    source = random.Random(seed)
    sent = [one for _ in range(4) for one in Device(chosen, source).period(START)]
    spender = Device(chosen, source)
    sent += [one for _ in range(2) for one in spender.chain(chosen.metric("colour"), START + DAY)]
    return sorted(sent)


def test_append_times_do_not_fall_where_a_reader_goes_on(tmp_path):
    """A clock that is set back is that of the record before, in whichever call that was read."""
    sent = [Sent(START + at * HOUR, b"no report %d" % at) for at in range(5)]
    with running(tmp_path, sent, small_plans(), lanes=1) as engine:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "IDLE_SECONDS", 0)
            engine.discover()
            part = engine._partitions()[0]
            while engine.read_from(part, 1):
                pass
            append(tmp_path / "log", [(START, b"behind")])
            engine.checkpoint()
            engine.restart(0)
            engine.read_from(part, 1)
        (found,) = (each for each in engine.rejects if each.message == b"behind")
    assert found.append == sent[-1].append


def test_an_idle_partition_does_not_hold_windows_open(tmp_path):
    """It follows the clock at a distance, while another goes on."""
    sent = honest(4, 1, 3)
    with running(tmp_path, sent, small_plans(), now=START + 12 * DAY, idle=60_000) as engine:
        engine.read_all()
        engine.advance()
        held = engine.watermark
        assert held.micros // 1000 <= max(one.append for one in sent)
        for part in engine._partitions():
            engine.read_from(part, 1)
        engine.advance()
        assert engine.watermark == held
        engine.now += 61_000
        for part in engine._partitions():
            engine.read_from(part, 1)
        engine.discover()
        engine.advance()
        assert engine.watermark.micros // 1000 == engine.now - 60_000
