"""``sotto log copy`` and ``sotto replay --topic`` against a real broker."""

from __future__ import annotations

import time

import pytest
from aggregated import aggregated, read_all

from clientsdk.testing import small_plan
from sotto.log.writer import LogWriter
from sotto.wire.format import decode_message
from sotto_cli import main

pytestmark = pytest.mark.slow

DAY = 86_400_000


@pytest.fixture
def plan_of_days(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(small_plan().to_json())
    return path


def table(folder, days_ago):
    """Write a table of 30 devices that recorded two colours each, so many days ago."""
    then = int(time.time() * 1000) - days_ago * DAY
    rows = [f"d{n},{then + n},{('red', 'blue')[n % 2]}" for n in range(30) for _ in range(2)]
    file = folder / "table.csv"
    file.write_text("\n".join(["who,when,colour", *rows]) + "\n")
    return file


@pytest.fixture
def replayed(plan_of_days, tmp_path):
    """Return a function that replays the table to somewhere else and returns its status."""

    def replay(days_ago, *where):
        source = ["--input", str(table(tmp_path, days_ago)), "--device-column", "who"]
        options = ["--time-column", "when", "--seed", "1", "--processes", "1", *where]
        return main(["replay", "--plan", str(plan_of_days), *source, *options])

    return replay


def test_a_replayed_log_is_counted_from_a_topic_as_from_its_folder(
    broker, topic, replayed, tmp_path, capsys
):
    log = tmp_path / "log"
    assert replayed(1, "--out", str(log)) == 0
    copy = ["log", "copy", str(log), "--topic", str(topic), "--kafka", broker.servers]
    assert main(copy) == 0
    sent = read_all(broker, topic)
    assert f"{topic}: {len(sent)} messages sent" in capsys.readouterr().out
    for record in sent:
        assert record.partition == topic.partition(decode_message(record.value).shard)
    result = aggregated(broker, topic, tmp_path / "state")
    assert (result.tally.duplicates, result.rejects) == (0, {})
    assert main(copy) == 0
    again = aggregated(broker, topic, tmp_path / "state")
    assert again.tally.counted == 0
    assert again.tally.duplicates == result.tally.reports


def test_damage_and_what_was_appended_at_another_time_stay_behind(broker, topic, tmp_path, capsys):
    with LogWriter(tmp_path / "log", "a") as writer:
        starts = [writer.append(b"message %d" % append, append) for append in range(1, 6)]
    [segment] = (tmp_path / "log" / "a").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[starts[2] + 16] ^= 1
    segment.write_bytes(data)
    where = ["--topic", str(topic), "--kafka", broker.servers]
    assert main(["log", "copy", str(tmp_path / "log"), "--since", "2", "--until", "4", *where]) == 1
    found = sorted(record.value for record in read_all(broker, topic))
    assert found == [b"message 2", b"message 4"]
    assert "1 records were left out: damaged" in capsys.readouterr().err
    assert main(["log", "copy", str(tmp_path / "none"), *where]) == 2
    assert "holds no log: name the folder of --log" in capsys.readouterr().err


def test_replay_sends_to_a_topic_and_warns_of_what_comes_late(
    broker, topic, replayed, tmp_path, capsys
):
    assert replayed(400, "--topic", str(topic), "--kafka", broker.servers) == 0
    assert "60 of 60 rows are older than the plan accepts" in capsys.readouterr().err
    result = aggregated(broker, topic, tmp_path / "state")
    assert (list(result.rejects), result.tally.counted) == (["late"], 0)
    capsys.readouterr()
    assert replayed(1, "--topic", "nowhere-e1-p2", "--kafka", broker.servers) == 2
    said = capsys.readouterr()
    assert (said.out, "there is no topic nowhere-e1-p2" in said.err) == ("", True)
    assert replayed(1) == 2
    assert "--out DIR is missing, or --topic NAME" in capsys.readouterr().err
    assert replayed(1, "--out", str(tmp_path / "log"), "--topic", str(topic)) == 2
    assert "--topic goes with --kafka or --broker" in capsys.readouterr().err
