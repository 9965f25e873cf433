"""Simulated devices, whose store is in memory: a device on a file does the same, to the byte.

Both play tables and plans drawn from a seed, under every kind of metric, mechanism and repetition,
with panels, low ceilings, signatures, groups, segments, experiments and measures.
"""

from __future__ import annotations

import random
from itertools import count

import pytest
from every_type import KINDS, START

from sotto.plan.compile import parse_plan
from sotto_cli.simulation.device import Device
from sotto_cli.simulation.devices import Fleet, Schedule
from sotto_cli.simulation.playback import Replay
from sotto_cli.simulation.table import Columns, read_recordings

HOUR = 3_600_000
DAY = 24 * HOUR
LADDERS = (
    "[{epsilon: 6}]",
    "[{epsilon: 1}, {epsilon: 6, after: 1d}]",
    "[{epsilon: 0.5}, {epsilon: 2, after: 1d}, {epsilon: 6, after: 9d}]",
)
REPEATS = ("{once: first}", "{once: reservoir}", "{every: 3}")


class FileDevice(Device):
    """A client with its store in a file: the reference."""

    folder = None
    numbers = count()

    def __init__(self, *arguments, state, **options):
        path = self.folder / f"device-{next(self.numbers)}.db"
        super().__init__(*arguments, state=path, **options)


class FileFleet(Fleet):
    device = FileDevice


def drawn_plan(source):
    """Return the text of a plan, and the kinds of its metrics by name."""
    chosen = source.sample(sorted(KINDS), source.randrange(1, 6))
    lines = []
    for name in chosen:
        kind = KINDS[name]
        repeat = source.choice(REPEATS)
        ladder = source.choice(LADDERS)
        if name == "constant" or name == "rappor" or "top" in kind.line:
            line = f"{kind.line}, {kind.ladder}"
        elif repeat == "{once: reservoir}":
            released = ladder.replace("after: 9d", "after: 16d").replace("after: 1d", "after: 8d")
            released = released.replace("}", ", after: 7d}", 1)
            line = f"{kind.line}, window: 7d, repeat: {repeat}, ladder: {released}"
        else:
            line = f"{kind.line}, window: 7d, repeat: {repeat}, ladder: {ladder}"
        # A kind may say its own repetition.
        line = line.replace(", repeat: {once: first}", "", 1) if line.count("repeat") > 1 else line
        lines.append(f"  {name}: {{{line}}}\n")
    lines += MEASURES if source.random() < 0.5 else ()
    head = [
        "collector: tests.example\nplan: drawn\nversion: 1\nowner: nobody@tests.example",
        f"expires: {source.choice(('2100-01-01', '2023-10-20'))}",
        f"period: 7d\nresolution: {source.choice(('1h', '1d'))}",
        f"ceilings: {{period: 120, lifetime: {source.choice((120, 100_000))}}}",
    ]
    head += [source.choice(("panel: 1/3", "authentication: required", EXPERIMENT, SEGMENTS))]
    return "\n".join(head) + "\nmetrics:\n" + "".join(lines), chosen


SEGMENTS = "segments: {os: [linux, mac]}"
WEEKLY = "window: 7d, ladder: [{epsilon: 1}, {epsilon: 2}]"
STORED = f"stored: true, {WEEKLY}"
MEASURES = (
    f"  uses: {{type: ordinal, edges: [0, 1], measure: {{count: event}}, {STORED}}}\n",
    f"  age: {{type: ordinal, measure: {{age: 7d, up_to: 3}}, {STORED}}}\n",
    f"  used: {{type: boolean, measure: {{used: event}}, {WEEKLY}}}\n",
)
EXPERIMENT = "experiment: {name: onboarding, arms: [control, treatment], share: 0.5}"


def drawn_table(source, metrics):
    """Return CSV whose rows come in no order, with times that repeat, and cells that are empty."""
    lines = []
    for device in range(source.randrange(1, 4)):
        time = START + source.randrange(30 * DAY)
        for _ in range(source.randrange(1, 14)):
            time += source.choice((0, HOUR, 9 * HOUR, 3 * DAY, 8 * DAY))
            cells = [_cell(KINDS[name].value(source), source) for name in metrics]
            system = source.choice(("linux", "mac", "beos", ""))
            event = str(source.randrange(3))
            lines.append(",".join([f"d{device}", str(time), system, event, *cells]))
    source.shuffle(lines)
    return "\n".join([",".join(["who", "when", "os", "event", *metrics]), *lines]) + "\n"


def _cell(value, source):
    if source.random() < 0.05:
        return ""
    if isinstance(value, list):
        top = isinstance(value[0], str)
        return value[0] if top else " ".join(map(str, value))
    return str(value)


def played(folder, plan, recordings, seed, source, fleet=Fleet):
    until = source.choice((None, None, START + 40 * DAY))
    schedule = Schedule(source.choice((DAY, 6 * HOUR)), until, source.random() < 0.3)
    replay = Replay(folder, schedule, 1, seed=seed, fleet=fleet)
    result = replay.run(plan, recordings)
    files = {path.name: path.read_bytes() for path in sorted(folder.rglob("*.seg"))}
    said = result.audit, result.outcomes, result.skipped
    return files, *said, result.unsent, result.messages, result.written


def compare(seed, tmp_path, monkeypatch):
    source = random.Random(seed)
    text, metrics = drawn_plan(source)
    plan = parse_plan(text).compile()
    table = tmp_path / f"{seed}.csv"
    table.write_text(drawn_table(source, metrics))
    segments = {name: name for name, _ in plan.segments}
    columns = Columns.of_plan(plan, "who", "when", segments=segments)
    recordings = read_recordings(table, plan, columns)
    choices = source.getrandbits(32)
    fast = played(tmp_path / f"{seed}-fast", plan, recordings, seed, random.Random(choices))
    (tmp_path / f"{seed}-devices").mkdir()
    monkeypatch.setattr(FileDevice, "folder", tmp_path / f"{seed}-devices")
    source = random.Random(choices)
    slow = played(tmp_path / f"{seed}-slow", plan, recordings, seed, source, FileFleet)
    assert fast == slow, f"seed {seed}: {text}"
    assert len(list(FileDevice.folder.glob("*.db"))) == recordings.devices
    return {outcome for _, outcome in fast[2]}


def test_a_device_on_a_file_does_the_same_also_in_continuous_integration(tmp_path, monkeypatch):
    for seed in range(3):
        assert "accepted" in compare(seed, tmp_path, monkeypatch)
        monkeypatch.setenv("CI", "true")
        monkeypatch.setenv("DO_NOT_TRACK", "1")


@pytest.mark.slow
def test_devices_on_files_do_the_same(tmp_path, monkeypatch):
    seen = set()
    for seed in range(100, 140):
        seen |= compare(seed, tmp_path, monkeypatch)
    # Every outcome for which the plans were drawn has come about.
    assert seen == {"accepted", "period_full", "not_in_panel", "over_budget", "expired"}
