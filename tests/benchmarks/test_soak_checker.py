"""The fault run's checker: it holds of what is right, and finds what is planted."""

from __future__ import annotations

import dataclasses
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_documents import window_document

from benchmarks.soak.checker import (
    UnexplainedError,
    Verdict,
    audit_of_fleet,
    audit_of_state,
    compare_audits,
    judge,
    published_windows,
    spread,
    windows_of,
)
from benchmarks.soak.fleet import COLOUR, LEVELS, METRICS, SYMBOLS, Fleet, Progress, plan_of
from clientsdk.testing import FakeClock, SeededClient
from mechanisms.coins import shard_of
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import rows_of_windows
from pipelines.bounded.run import aggregate
from pipelines.results.documents import WindowDocument, parse
from pipelines.storage.directory import StateDirectory
from sotto.log.writer import LogWriter
from sotto.plan.registry import Registry
from sotto.wire.format import Row, decode_message, encode_message

pytestmark = pytest.mark.slow

DEVICES = 300
BASE = 1_750_000_000_000
APPEND = BASE + 3_600_000
#: A device whose newest level is never sent, and one that is sent nothing.
TWO_LEVELS, SILENT = 7, 8


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(plan_of(), BASE, 20_261_121)


def all_messages(fleet: Fleet) -> dict[tuple[int, int], bytes]:
    """Return what honest senders send, by device and level."""
    return {
        (device, level): fleet.message(device, level)[1]
        for device in range(DEVICES)
        for level in range(LEVELS)
        if device != SILENT and (device, level) != (TWO_LEVELS, 2)
    }


def bits(messages: dict[tuple[int, int], bytes]) -> np.ndarray:
    found = np.zeros(DEVICES, dtype=np.uint8)
    for device, level in messages:
        found[device] |= 1 << level
    return found


def aggregated(folder: Path, fleet: Fleet, messages: list[bytes]) -> StateDirectory:
    """Aggregate messages in random order, a tenth of them twice."""
    source = random.Random(1)
    arrived = messages + source.sample(messages, len(messages) // 10)
    source.shuffle(arrived)
    with LogWriter(folder / "log", "lane", fsync="never") as writer:
        for message in arrived:
            writer.append(message, APPEND)
    aggregate(folder / "log", folder / "state", [fleet.plan], clock=lambda: APPEND)
    return StateDirectory(folder / "state")


def verdict_of(state: StateDirectory, fleet: Fleet, sent: np.ndarray) -> Verdict:
    counted, stray = spread(windows_of(state), fleet, DEVICES)
    return judge(counted, sent, sent, stray)


def test_all_buckets_count_once_whatever_the_order(tmp_path, fleet):
    messages = all_messages(fleet)
    state = aggregated(tmp_path, fleet, list(messages.values()))
    verdict = verdict_of(state, fleet, bits(messages))
    buckets = METRICS * (DEVICES - 1)
    assert verdict == Verdict(buckets, buckets, buckets, METRICS, 0, 0, 0, 0, 0)
    assert verdict.holds
    counted, _ = spread(windows_of(state), fleet, DEVICES)
    assert counted[:, TWO_LEVELS].tolist() == [[0, 1, 0]] * METRICS
    audited_state = audit_of_state(state, Registry([fleet.plan]))
    audited = compare_audits(audited_state, audit_of_fleet(fleet, counted), [])
    assert (audited.pseudonyms, audited.wrong) == (DEVICES - 1, 0)


def test_what_was_acknowledged_and_is_not_there_is_found(tmp_path, fleet):
    """A value of which no level arrived, and one of which the newest did not."""
    messages = all_messages(fleet)
    there = {key: value for key, value in messages.items() if key[0] != 11 and key != (12, 2)}
    state = aggregated(tmp_path, fleet, list(there.values()))
    verdict = verdict_of(state, fleet, bits(messages))
    assert (verdict.lost, verdict.older, verdict.more) == (METRICS, METRICS, 0)
    assert not verdict.holds


def test_what_counts_twice_is_found(tmp_path, fleet):
    """A device that draws again under another chain, and reports in buckets that are nobody's."""
    messages = all_messages(fleet)
    pseudonym = fleet.pseudonym(DEVICES + 1)
    rows = [
        Row(2, pseudonym, bytes(16), fleet.event(20), bytes([20])),
        Row(1, pseudonym, bytes(15) + b"1", fleet.event(20) - 1000, bytes([3])),
    ]
    metric = fleet.metrics[0].index
    shard = shard_of(pseudonym, fleet.plan.shards)
    planted = [encode_message(fleet.plan.fingerprint, shard, [(metric, [row])]) for row in rows]
    state = aggregated(tmp_path, fleet, [*messages.values(), *planted])
    verdict = verdict_of(state, fleet, bits(messages))
    assert (verdict.more, verdict.stray, verdict.lost) == (1, 1, 0)
    assert not verdict.holds


@pytest.mark.parametrize("of", ["more", "lost", "older", "unsent", "stray"])
def test_each_finding_breaks_it(of):
    sound = Verdict(10, 9, 9, 1, 0, 0, 0, 0, 0)
    assert sound.holds
    assert not dataclasses.replace(sound, **{of: 1}).holds


def test_a_retraction_too_many_is_no_count_of_once():
    counted = np.zeros((METRICS, 2, LEVELS), dtype=np.int64)
    counted[:, :, 2] = 1
    counted[0, 1] = [-1, 1, 1]
    sent = np.full(2, 0b111, dtype=np.uint8)
    assert judge(counted, sent, sent).more == 1


def test_a_level_that_was_never_sent_is_found():
    counted = np.zeros((METRICS, 1, LEVELS), dtype=np.int64)
    counted[:, 0, 1] = 1
    sent = np.array([0b101], dtype=np.uint8)
    assert judge(counted, sent, np.zeros(1, dtype=np.uint8)).unsent == METRICS


def test_every_value_has_a_bucket_of_its_own(fleet):
    seen = set()
    for device in (0, 1, SYMBOLS - 1, SYMBOLS, SYMBOLS + 1, 5 * SYMBOLS):
        for level in range(LEVELS):
            shard, message = fleet.message(device, level)
            taken = decode_message(message)
            assert taken.shard == shard
            for run in taken.groups:
                (row,) = run.rows
                seen.add((run.metric, row.event, row.level, row.payload))
    assert len(seen) == 6 * LEVELS * METRICS


def test_real_devices_are_audited(tmp_path, fleet):
    """The ledger of a device and the audit of its reports; one that differs is found."""
    clock, sent, paths = FakeClock(BASE), [], []
    for seed in range(3):
        paths.append(tmp_path / f"device-{seed}.db")
        client = SeededClient(fleet.plan, seed=seed, state=paths[-1], clock=clock)
        for _ in range(seed):
            client.record(COLOUR, "red")
        clock.advance(seconds=4)
        client.flush()
        sent += [message for _, message in client.publisher.messages]
        client.close()
    state = audit_of_state(aggregated(tmp_path, fleet, sent), Registry([fleet.plan]))
    assert compare_audits(state, {}, paths).wrong == 0
    name, spent = next(iter(state.items()))
    off = {**state, name: spent._replace(accepted=spent.accepted + 1)}
    assert compare_audits(off, {}, paths).wrong == 1
    seen_more = {**state, name: spent._replace(observed=spent.observed + 1)}
    assert compare_audits(seen_more, {}, paths).wrong == 1
    assert compare_audits({**state, bytes(16): spent}, {}, paths).wrong == 1
    assert compare_audits({}, {}, paths).wrong == 2
    assert compare_audits(state, {bytes(16): spent}, paths).wrong == 1


_DYING = """
import os, signal, sys
from pathlib import Path
from benchmarks.soak.fleet import Progress
progress = Progress(Path(sys.argv[1]), 10)
progress.add("begun", 4)
progress.sent[:4] = [1, 3, 7, 1]
progress.acknowledged[:4] = [0, 1, 7, 0]
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.real_randomness
def test_progress_outlives_the_process_that_notes_it(tmp_path):
    done = subprocess.run([sys.executable, "-c", _DYING, tmp_path / "progress"], check=False)
    assert done.returncode == -signal.SIGKILL
    progress = Progress(tmp_path / "progress", 10)
    assert progress.sent[:4].tolist() == [1, 3, 7, 1]
    assert progress.known().tolist() == [0, 1, 7, 0]


def published(fleet: Fleet, counted: np.ndarray) -> WindowDocument:
    key = WindowKey(fleet.plan.fingerprint, fleet.metrics[2].index, fleet.base)
    windows, estimates = rows_of_windows(
        [(key, WindowCounts(1, counted))], Registry([fleet.plan]), {}
    )
    document = parse(*window_document("job", windows[0], estimates, 1, "early"))
    assert isinstance(document, WindowDocument)
    return document


@pytest.mark.parametrize("reports", [1, 3, 40, 128])
def test_counts_come_back_from_published_estimates(fleet, reports):
    source = np.random.default_rng(reports)
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    counted[source.integers(LEVELS, size=reports), np.arange(reports)] = 1
    counted[0, 5] += 1
    counted[2, 6] += 1
    ((key, found),) = published_windows([published(fleet, counted)], fleet)
    assert (key.metric, key.start) == (fleet.metrics[2].index, fleet.base)
    assert (found == counted).all()


def test_published_estimates_that_no_counts_give_are_found(fleet):
    counted = np.zeros((LEVELS, SYMBOLS), dtype=np.int64)
    counted[1, :4] = 1
    document = published(fleet, counted)
    document.estimates[3]["value"] += 0.01
    with pytest.raises(UnexplainedError):
        list(published_windows([document], fleet))
    empty = document.model_copy(update={"window": {**document.window, "n": 0}, "estimates": ()})
    ((_, found),) = published_windows([empty], fleet)
    assert not found.any()
