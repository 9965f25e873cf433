"""Plans that come while a streaming pipeline runs, and what is given back to it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from drain_logs import START, Device, Sent
from step_plans import category, plan
from stream_engine import Engine
from streaming_logs import write

from pipelines.beam.partitions import LogPartitions
from pipelines.beam.plans import LOOK_SECONDS, PlansFolder
from pipelines.beam.stream import Stream
from pipelines.published import WindowDocument
from pipelines.storedplans import StoredPlans
from sotto.compiled import CompiledPlan


def stream_in(folder: Path, plans: Sequence[CompiledPlan]) -> Stream:
    (folder / "plans").mkdir()
    StoredPlans(folder / "plans").keep(plans, {})
    return Stream("job", PlansFolder(str(folder / "plans")))


def sent(under: CompiledPlan, devices: int, seed: int) -> list[Sent]:
    """Return one chain of each device, all in one window."""
    source = random.Random(seed)
    found = [Device(under, source).chain(under.metrics[0], START) for _ in range(devices)]
    return sorted(one for chain in found for one in chain)


def told(engine: Engine) -> list[tuple[object, ...]]:
    """Return what the documents of windows say: version, number of reports, number of rows."""
    windows = [each for each in engine.documents.values() if isinstance(each, WindowDocument)]
    return sorted(
        (each.window["version"], each.window["n"], bool(each.estimates)) for each in windows
    )


def test_a_lower_version_that_comes_later_takes_the_place_of_the_higher(tmp_path: Path) -> None:
    """Its documents have another key: those under the old one are emptied."""
    first, later = (plan(version, 4, category("colour", 3, 0.5, 1)) for version in (1, 2))
    write(tmp_path / "log", {"one": sent(later, 5, 1)})
    stream = stream_in(tmp_path, [later])
    sources = [LogPartitions(str(tmp_path / "log"))]
    with Engine(stream, sources, random.Random(1)) as engine:
        engine.discover()
        while engine.read():
            engine.deliver()
        for _ in range(20):
            engine.tick(40_000)
            engine.deliver()
        assert told(engine) == [(2, 5, True)]
        StoredPlans(tmp_path / "plans").keep([first], {})
        write(tmp_path / "log", {"two": sent(first, 3, 2)})
        engine.tick(int(LOOK_SECONDS * 1000))
        engine.finish()
        assert told(engine) == [(1, 8, True), (2, 0, False)]
