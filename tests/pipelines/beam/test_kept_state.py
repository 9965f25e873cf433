"""An engine's state of a job is restored by this release, from the bytes of the one that wrote it.

``golden/state-N.json`` holds a log, its plan, and all that an engine keeps half-way through it, as
the release wrote it that introduced the version N. :func:`kept` makes such a file.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from report_logs import Sent, append
from stream_engine import Engine, Keyed, Part
from streaming_logs import honest, outcome_of_run, small_plans, streamed

from pipelines.beam import PlansFolder, counting
from pipelines.beam.coders import VERSION, Clock, ClockCoder, NamesCoder, OffsetsCoder, StateCoder
from pipelines.beam.stream import Stream
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plans import StoredPlans
from sotto.errors import FormatError
from sotto.plan.compiled import CompiledPlan

GOLDEN = sorted((Path(__file__).parent / "golden").glob("state-*.json"))
Saved = dict[str, Any]


def engine_of(folder: Path, saved: Saved) -> Engine:
    """Return an engine that has kept nothing yet, over the log of a file."""
    plans = [CompiledPlan.from_json(plan.encode()) for plan in saved["plans"]]
    (folder / "plans").mkdir()
    StoredPlans(folder / "plans").keep(plans, {})
    append(folder / "log", [Sent(at, bytes.fromhex(each)) for at, each in saved["log"]], "one")
    stream = Stream("job", PlansFolder(str(folder / "plans")))
    return Engine(stream, [EmbeddedLog(folder / "log")], random.Random(1))


def begun() -> Saved:
    """Return a file's log and plans."""
    return {
        "plans": [plan.to_json().decode() for plan in small_plans()],
        "log": [[sent.append, sent.message.hex()] for sent in sorted(honest(4, 2, 5))],
    }


def kept(folder: Path, saved: Saved) -> Saved:
    """Return a file with what the engine keeps after half of its log; some rows are not counted."""
    with pytest.MonkeyPatch.context() as patch, engine_of(folder, saved) as engine:
        patch.setattr("sotto.log.reader.BLOCK_BYTES", 200)
        patch.setattr(counting, "SHORT", 100)
        engine.discover()
        (part,) = engine._partitions()
        end = EmbeddedLog(folder / "log").partition("one").bounds()[1]
        while (
            engine.parts[part].restriction is None or engine.parts[part].restriction.start < end / 2
        ):
            engine.read_from(part, 1)
            engine.deliver()
            engine.advance()
            engine.settle(20_000)
        engine.read_from(part, 1)
        engine.checkpoint()
        keyed, parts, _ = engine.checkpoints[-1]
    coders = {True: NamesCoder(), False: OffsetsCoder()}
    return {
        **saved,
        "now": engine.now,
        "state": [
            {
                "stage": stage,
                "key": key.hex(),
                "content": {
                    name: [StateCoder().encode(each).hex() for each in value]
                    if isinstance(value, list)
                    else StateCoder().encode(value).hex()
                    for name, value in each.content.items()
                },
                "timers": each.timers,
            }
            for (stage, key), each in keyed.items()
        ],
        "parts": [
            {
                "name": name,
                "restriction": coders[name is None].encode(part.restriction).hex(),
                "clock": ClockCoder().encode(part.clock).hex(),
            }
            for (_, name), part in parts.items()
        ],
    }


def restore(engine: Engine, saved: Saved) -> None:
    """Let an engine go on from what a file holds."""

    def decoded(value: str | list[str]) -> object:
        if isinstance(value, list):
            return [decoded(each) for each in value]
        return StateCoder().decode(bytes.fromhex(value))

    for each in saved["state"]:
        keyed = engine.keyed[each["stage"], bytes.fromhex(each["key"])] = Keyed()
        keyed.content = {name: decoded(value) for name, value in each["content"].items()}
        keyed.timers = dict(each["timers"])
    for each in saved["parts"]:
        coder = NamesCoder() if each["name"] is None else OffsetsCoder()
        restriction = coder.decode(bytes.fromhex(each["restriction"]))
        clock = ClockCoder().decode(bytes.fromhex(each["clock"]))
        engine.parts[0, each["name"]] = Part(restriction, clock)
    engine.now = saved["now"]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_job_goes_on_from_what_a_release_has_kept(path, tmp_path):
    saved = json.loads(path.read_bytes())
    names = {(each["stage"], name) for each in saved["state"] for name in each["content"]}
    stages = ("windows", "periods", "health")
    assert names >= {("count", each) for each in ("gathered", "log", "snapshot", "head")}
    assert names >= {(stage, each) for stage in stages for each in ("sum", "emitted")}
    with engine_of(tmp_path, saved) as engine:
        restore(engine, saved)
        engine.finish()
        found = streamed(engine.documents.values(), engine.rejects)
    plans = StoredPlans(tmp_path / "plans").load_all()
    wanted = outcome_of_run(tmp_path / "log", tmp_path / "state", plans)
    assert found._asdict() == wanted._asdict()


@pytest.mark.parametrize(
    ("coder", "value", "encoded"),
    [
        (OffsetsCoder(), OffsetRange(5, 2**62), "0105000000000000000000000000000040"),
        (ClockCoder(), Clock(1, -2), "010100000000000000feffffffffffffff"),
        (NamesCoder(), ("log-0", "log-1"), "015b226c6f672d30222c20226c6f672d31225d"),
        (StateCoder(), b"rows", "01726f7773"),
    ],
)
def test_values_are_kept_in_a_version_and_no_other_is_read(coder, value, encoded):
    assert coder.encode(value).hex() == encoded
    assert coder.decode(bytes.fromhex(encoded)) == value
    for other in (b"", bytes([VERSION + 1]) + coder.encode(value)[1:]):
        with pytest.raises(FormatError, match="another release"):
            coder.decode(other)
