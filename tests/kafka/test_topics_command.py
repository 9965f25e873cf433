"""``sotto topics`` against a real broker: what it makes, and every refusal."""

from __future__ import annotations

import pytest
from aggregated import admin, configure

from clientsdk import Broker
from clientsdk.testing import small_plan
from sotto.kafka.admin import connected
from sotto.plan.durations import duration_text
from sotto_cli import main

pytestmark = pytest.mark.slow

DAY = 86_400_000


@pytest.fixture
def run(broker, tmp_path, capsys):
    """Runs the command with a plan whose horizon is three days; returns status and both outputs."""
    path = tmp_path / "plan.json"
    path.write_bytes(small_plan().to_json())
    assert small_plan().horizon == 3 * DAY

    def command(action, *arguments, where=("--kafka", broker.servers), plan=True):
        known = ["--plan", str(path)] if plan else []
        status = main(["topics", action, *arguments, *known, *where])
        return status, *capsys.readouterr()

    return command


def refused(result, *said):
    status, out, err = result
    assert (status, out) == (2, "")
    for words in said:
        assert words in err


def test_a_topic_is_made_once_and_checked(run, broker):
    status, out, err = run("create", "made", "--partitions", "8")
    assert (status, err) == (0, "")
    assert out == "made-e1-p8 is made\npartitions 8, replicas 1, records stay 3d\n"
    assert run("create", "made", "--partitions", "8")[1].startswith("made-e1-p8 is there already")
    assert run("check", "made-e1-p8")[1].startswith("made-e1-p8 can be used\npartitions 8")
    with connected(broker) as topics:
        (topic,) = topics.epochs("made")
        settings = topics.find(topic).settings
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["retention.ms"] == str(3 * DAY)
    assert settings["min.insync.replicas"] == "1"


def test_epochs_follow_each_other(run):
    assert run("create", "grown", "--partitions", "4")[0] == 0
    refused(
        run("create", "grown", "--partitions", "8"),
        "grown-e1-p4 is there already",
        "aggregate it, then create epoch 2",
    )
    assert run("create", "grown", "--partitions", "8", "--epoch", "2")[0] == 0
    refused(run("create", "grown", "--partitions", "2", "--epoch", "1"), "create epoch 3")
    status, out, _ = run("list", "grown", plan=False)
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["topic", "epoch", "partitions"],
        ["grown-e1-p4", "1", "4"],
        ["grown-e2-p8", "2", "8"],
    ]


def test_retention_covers_the_plans(run):
    long = run("create", "long", "--partitions", "1", "--retention", "43266m")
    assert "records stay 30d 1h 6m" in long[1]
    refused(
        run("create", "short", "--partitions", "1", "--retention", "1d"),
        "--retention 1d is shorter",
        "give at least 3d",
    )


def test_what_cannot_be_is_refused(run):
    refused(run("create", "wide", "--partitions", "65"), "64 shards", "take at most 64")
    refused(run("create", "safe", "--partitions", "1", "--replicas", "3"), "only 1 broker(s)")
    refused(run("check", "nowhere-e1-p8"), "there is no topic nowhere-e1-p8: create it with sotto")
    refused(run("check", "nowhere"), "must be a full name")
    refused(run("list", "nowhere", plan=False), "no topic of reports called 'nowhere'")
    assert run("create", "somewhere", "--partitions", "2")[0] == 0
    refused(run("check", "somewhere-e1-p8"), "there are somewhere-e1-p2")


def test_a_topic_that_another_made_is_refused_with_all_that_is_wrong(run, broker):
    settings = {"retention.ms": str(DAY), "cleanup.policy": "compact", "retention.bytes": "100"}
    options = {"num_partitions": 3, "replication_factor": 1, "configs": settings}
    with admin(broker) as client:
        client.create_topics({"foreign-e1-p4": options}, wait_for_metadata=True)
    refused(
        run("check", "foreign-e1-p4"),
        "it has 3 partitions, not 4",
        "message.timestamp.type is CreateTime: set it to LogAppendTime",
        "cleanup.policy is compact: set it to delete",
        "records stay for 1d, plans accept reports for 3d: set retention.ms to at least 259200000",
        "retention.bytes is 100: set it to -1",
        "max.message.bytes is 1048588: set it to at least",
    )


def test_tls_and_a_name_from_a_file(run, secured, tmp_path, monkeypatch):
    where = ("--broker", str(secured.client_file))
    assert run("create", "private", "--partitions", "2", where=where)[0] == 0
    known = Broker.from_file(secured.client_file)
    stranger = tmp_path / "stranger.json"
    stranger.write_text(
        f'{{"servers": "{known.servers}", "ca": "{known.ca}", "user": "x", "password": "y"}}',
        encoding="utf-8",
    )
    monkeypatch.setattr("sotto.kafka.admin.PATIENCE", 2.0)
    refused(
        run("check", "private-e1-p2", where=("--broker", str(stranger))),
        "does not let us in: check user, password and mechanism",
    )


def test_topics_beside_those_of_reports(run, broker):
    refused(run("check", "whole-e1-p2", "--sinks"), "there is no topic whole-e1-p2")
    assert run("create", "whole", "--partitions", "2")[0] == 0
    refused(run("check", "whole-e1-p2", "--sinks"), "no topic whole-estimates", "create whole --s")
    status, out, err = run("create", "whole", "--partitions", "2", "--sinks")
    assert (status, err) == (0, "")
    retention = duration_text(small_plan().retention)
    assert out.splitlines()[2:] == [
        "whole-estimates is made",
        "partitions 1, replicas 1, the newest stays",
        "whole-quarantine is made",
        f"partitions 2, replicas 1, records stay {retention}",
        "whole-requeue is made",
        "partitions 2, replicas 1, records stay "
        + duration_text(small_plan().retention + small_plan().horizon),
    ]
    again = run("create", "whole", "--partitions", "2", "--sinks")[1]
    assert again.count("is there already") == 4
    assert run("check", "whole-e1-p2", "--sinks")[1].count("can be used") == 4
    configure(broker, "whole-estimates", "cleanup.policy", "delete")
    refused(
        run("check", "whole-e1-p2", "--sinks"),
        "topic whole-estimates: cleanup.policy is delete: set it to compact",
    )
