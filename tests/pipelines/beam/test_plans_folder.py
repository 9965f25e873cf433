"""Plans that come while a streaming pipeline runs, and what is given back to it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from report_logs import START, Device, Sent
from step_plans import DAY, category, plan
from stream_engine import Engine
from streaming_logs import shard_said, write

from pipelines.beam.counting import Head
from pipelines.beam.plans import LOOK_SECONDS, PlansFolder
from pipelines.beam.stream import Stream
from pipelines.results.documents import (
    HealthDocument,
    PeriodDocument,
    RejectsDocument,
    WindowDocument,
)
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plans import StoredPlans
from sotto.plan.compiled import CompiledPlan


def stream_in(folder: Path, plans: Sequence[CompiledPlan]) -> Stream:
    kept = PlansFolder(str(folder / "plans"))
    kept.keep(plans)
    return Stream("job", kept)


def sent(under: CompiledPlan, devices: int, seed: int) -> list[Sent]:
    source = random.Random(seed)
    found = [Device(under, source).chain(under.metrics[0], START) for _ in range(devices)]
    return sorted(one for chain in found for one in chain)


def read_all(engine: Engine) -> None:
    for part in [part for part in engine.parts if part[1] is not None]:
        while engine.read_from(part, 3_000):
            pass
    engine.deliver()


def told(engine: Engine) -> list[tuple[object, ...]]:
    windows = [each for each in engine.documents.values() if isinstance(each, WindowDocument)]
    return sorted(
        (each.window["version"], each.window["n"], bool(each.estimates)) for each in windows
    )


def test_a_lower_version_that_comes_later_takes_the_place_of_the_higher(tmp_path):
    """Its documents have another key: those under the old one are emptied."""
    first, later = (plan(version, 4, category("colour", 3, 0.5, 1)) for version in (1, 2))
    write(tmp_path / "log", {"one": sent(later, 5, 1)})
    stream = stream_in(tmp_path, [later])
    sources = [EmbeddedLog(tmp_path / "log")]
    with Engine(stream, sources, random.Random(1)) as engine:
        engine.discover()
        read_all(engine)
        for _ in range(20):
            engine.tick(40_000)
            engine.deliver()
        assert told(engine) == [(2, 5, True)]
        StoredPlans(tmp_path / "plans").keep([first], {})
        write(tmp_path / "log", {"two": sent(first, 3, 2)})
        engine.tick(int(LOOK_SECONDS * 1000))
        engine.finish()
        assert told(engine) == [(1, 8, True), (2, 0, False)]


class GivenBack(EmbeddedLog):
    """A log of what an operator gives back, with the times of before."""

    requeued = True


def rows_given_back(engine: Engine) -> dict[str, int]:
    (health,) = (each for each in engine.documents.values() if isinstance(each, HealthDocument))
    (rejects,) = (each for each in engine.documents.values() if isinstance(each, RejectsDocument))
    return {"counted": int(str(health.health["counted"])), **rejects.rejects}


def test_what_is_given_back_before_a_period_ends_is_counted(tmp_path):
    """Its shard has seen nothing else; by the clock the period is over, by the watermark not."""
    under = plan(1, 4, category("colour", 3, 0.5, 1))
    write(tmp_path / "log", {"one": sent(under, 5, 1)})
    write(tmp_path / "back", {"two": sent(under, 1, 2)})
    stream = stream_in(tmp_path, [under])
    sources = [EmbeddedLog(tmp_path / "log"), GivenBack(tmp_path / "back")]
    with Engine(stream, sources, random.Random(1)) as engine:
        engine.discover()
        read_all(engine)
        engine.advance()
        for _ in range(10):
            engine.tick(stream.linger)
        engine.finish()
        assert rows_given_back(engine) == {"counted": 6}
        assert told(engine) == [(1, 6, True)]
        (audit,) = (e.period for e in engine.documents.values() if isinstance(e, PeriodDocument))
        assert (audit["pseudonyms"], audit["closed"]) == (6, True)


def test_rows_do_not_wait_for_an_audit(tmp_path):
    """Audits of large states are far apart; what comes between them is counted as soon as ever."""
    under = plan(1, 4, category("colour", 3, 0.5, 1))
    first, second = sent(under, 1, 1), sent(under, 1, 1)
    stream = replace(stream_in(tmp_path, [under]), every=3_600_000)
    source = [EmbeddedLog(tmp_path / "log")]
    with Engine(stream, source, random.Random(1)) as engine:
        for lane, reports in (("one", first[:1]), ("two", first[1:]), ("three", second)):
            write(tmp_path / "log", {lane: reports})
            engine.discover()
            read_all(engine)
            for _ in range(8):
                engine.tick(stream.linger)
            heads = [
                json.loads(keyed.content["head"])
                for (stage, _), keyed in engine.keyed.items()
                if stage == "count"
            ]
            assert [head[Head._fields.index("rows")] for head in heads] == [0]


@pytest.mark.parametrize("noted", [True, False])
def test_a_plan_that_comes_when_a_period_is_over_does_not_open_it_again(tmp_path, noted):
    """Its audit is published by then. Without the note it seems to have been there all the time."""
    colour, slow = category("colour", 3, 0.5, 1), category("slow", 3, 0.5, 1)
    slow["ladder"] = [
        {**level, "after": number * 400 * DAY} for number, level in enumerate(slow["ladder"])
    ]
    first, later = plan(1, 4, colour), plan(2, 4, colour, slow)
    before = sent(first, 5, 1)
    shards = {shard_said(message) for _, message in before}
    others = (Device(later, random.Random(at)).chain(later.metrics[1], START, 1) for at in count(2))
    other = next(found for found in others if shard_said(found[0].message) not in shards)
    write(tmp_path / "log", {"one": before})
    stream = stream_in(tmp_path, [first])
    with Engine(stream, [EmbeddedLog(tmp_path / "log")], random.Random(1)) as engine:
        engine.finish()
        assert rows_given_back(engine) == {"counted": 5}
        if noted:
            PlansFolder(str(tmp_path / "plans")).keep([later])
        else:
            StoredPlans(tmp_path / "plans").keep([later], {})
        engine.tick(int(LOOK_SECONDS * 1000))
        # In time by the new plan's horizon, and too late by the old one's.
        late = [each._replace(append=each.append + 20 * DAY) for each in other]
        write(tmp_path / "log", {"two": late})
        engine.discover()
        read_all(engine)
        for _ in range(10):
            engine.tick(stream.linger)
        engine.finish()
        assert rows_given_back(engine) == ({"counted": 5, "late": 1} if noted else {"counted": 6})
        assert told(engine) == [(1, 5, True), *([] if noted else [(2, 1, True)])]
