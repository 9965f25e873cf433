"""``sotto replay`` of constant metrics and top items, and what the devices' ledgers say of it."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from sotto.cli.replay.devices import Schedule
from sotto.cli.replay.playback import Replay
from sotto.cli.replay.table import Columns, read_recordings
from sotto.log.writer import LogReader, partitions
from sotto.plan.compile import parse_plan
from sotto.plan.durations import parse_time
from sotto.wire.format import decode_message

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
#: A Thursday, when periods of seven days begin.
START = parse_time("2013-01-03")

PLAN = """
collector: test.example
plan: replayed
version: 1
owner: test@test.example
expires: 2030-01-01
period: 7d
ceilings: {period: 33, lifetime: 200}
resolution: 1h
metrics:
  model:
    type: category
    domain: [red, blue]
    outside: other
    window: 7d
    mechanism: grr
    repeat: {constant: true}
    ladder: [{epsilon: 1}, {epsilon: 2, after: 1d}, {epsilon: 3, after: 1d}]
  page:
    type: top_item
    domain: [home, search, cart]
    outside: other
    clip: 20
    window: 7d
    mechanism: permute_and_flip
    ladder: [{epsilon: 1}, {epsilon: 30, after: 1d}]
"""
DEVICES, ROWS = 25, 60


@pytest.fixture(scope="module")
def plan():
    return parse_plan(PLAN).compile()


@pytest.fixture(scope="module")
def recordings(plan, tmp_path_factory):
    """Each device names one page most of the time, another model each time; three weeks long."""
    assert isinstance(START, int)
    lines = [
        f"device-{device},{START + row * 8 * HOUR},{('red', 'blue')[row % 2]},"
        f"{('home', 'search', 'cart', 'elsewhere')[0 if row % 5 else device % 4]}\n"
        for device in range(DEVICES)
        for row in range(ROWS)
    ]
    path = tmp_path_factory.mktemp("kinds") / "table.csv"
    path.write_text("who,when,model,page\n" + "".join(lines))
    return read_recordings(path, plan, Columns.of_plan(plan, "who", "when"))


def rows(log):
    """All reports of a log, with the time at which each arrived and its metric."""
    found = []
    for lane in partitions(log):
        reader = LogReader(lane)
        for record in reader.records(0, reader.end()):
            for run in decode_message(record.body).groups:
                found += [(record.append, run.metric, row) for row in run.rows]
    return found


def play(plan, recordings, log, until=None):
    replay = Replay(log, Schedule(until=until), processes=1, witness=True)
    return replay.run(plan, recordings)


def test_what_devices_have_spent_is_what_can_be_counted(plan, recordings, tmp_path):
    played = play(plan, recordings, tmp_path / "log")
    newest = {}
    for _, metric, row in rows(tmp_path / "log"):
        cost = plan.metrics[metric].mechanism.certified(row.level)
        if cost > newest.get(row.chain, (b"", 0))[1]:
            newest[row.chain] = (row.pseudonym, cost)
    counted = defaultdict(int)
    for pseudonym, cost in newest.values():
        counted[pseudonym.hex()] += cost
    assert counted == {line.pseudonym: line.spent for line in played.audit}
    assert all(line.spent == line.reserved == plan.cost for line in played.audit)
    assert len(played.audit) == 3 * DEVICES
    assert played.unsent == 0
    assert played.outcomes == {
        ("model", "accepted"): 3 * DEVICES,
        ("model", "period_full"): (ROWS - 3) * DEVICES,
        ("page", "accepted"): ROWS * DEVICES,
    }


def test_a_device_says_one_model_for_life_and_one_page_a_period(plan, recordings, tmp_path):
    played = play(plan, recordings, tmp_path / "log")
    found = rows(tmp_path / "log")
    chains = {(metric, row.chain) for _, metric, row in found}
    assert Counter(metric for metric, _ in chains) == {0: 3 * DEVICES, 1: 3 * DEVICES}
    assert {row.level for _, metric, row in found if metric == 0} == {0, 1}
    for append, metric, row in found:
        if metric == 1:
            # The last step of the period, and it arrives when the period is over.
            assert (row.event + HOUR) % WEEK == 0
            assert append >= row.event + HOUR
    assert {kept.metric for kept in played.kept} == {"model"}
    firsts = {kept.device: kept.row for kept in played.kept}
    assert firsts == {device: device * ROWS for device in range(DEVICES)}
    assert len(played.kept) == 3 * DEVICES


def test_the_top_page_is_the_one_named_most(plan, recordings, tmp_path):
    """Its count is ahead by 9 at least: a chain is wrong with probability below 0.01.

    That a third of 75 chains are wrong then has a probability below 1e-30.
    """
    play(plan, recordings, tmp_path / "log")
    tops = Counter(
        row.payload[0] for _, metric, row in rows(tmp_path / "log") if (metric, row.level) == (1, 1)
    )
    assert tops.most_common(1)[0][0] == 0
    assert tops[0] > 2 * DEVICES


def test_counts_of_a_period_that_is_cut_off_are_not_sent(plan, recordings, tmp_path):
    assert isinstance(START, int)
    played = play(plan, recordings, tmp_path / "log", until=START + 3 * DAY)
    assert {metric for _, metric, _ in rows(tmp_path / "log")} == {0}
    page, model = plan.metric("page").cost, plan.metric("model").cost
    assert {(line.reserved, line.spent) for line in played.audit} == {(page + model, model)}
