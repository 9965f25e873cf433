"""Two shares of a real topic are combined, published, and taken by a sink; with all commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from drained import projected, publish
from sink_child import sunk

from clientsdk import Broker
from clientsdk.testing import small_plan
from deploy.kafka.broker import LocalBroker
from pipelines.sink import Sunk
from sotto.cli import main
from sotto.sinktopics import SinkTopic, Stay
from sotto.topicadmin import connected
from sotto.topics import ReportTopic

pytestmark = pytest.mark.slow


def results(where: str) -> dict[str, object]:
    """Return what a database estimates, and how much was rejected; not the way there."""
    tables = projected(where, without=("lineage",))
    rejects: dict[object, int] = {}
    for row in tables.pop("quarantine"):
        rejects[row["reason"]] = rejects.get(row["reason"], 0) + int(str(row["rows"]))
    return {**tables, "rejects": rejects}


def test_a_sink_has_what_the_shares_add_up_to(
    local: LocalBroker,
    broker: Broker,
    topic: ReportTopic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    estimates = SinkTopic(topic.name, "estimates")
    with connected(broker) as topics:
        topics.create_sink(estimates, 1, 1, Stay(1, 1))
    plan, file = tmp_path / "plan.json", str(local.client_file)
    plan.write_bytes(small_plan().to_json())
    reach = ["aggregate", "--plan", str(plan), "--broker", file, "--topic", str(topic)]
    shares = [
        ["--share", f"{number}/2", "--state", str(tmp_path / f"state-{number}")]
        for number in (1, 2)
    ]
    both = [word for share in shares for word in share[2:]]
    summed, sink = f"sqlite:///{tmp_path / 'all.db'}", f"sqlite:///{tmp_path / 'sunk.db'}"
    combine = ["combine", "--plan", str(plan), *both, "--database", summed]
    combine += ["--publish", str(estimates), "--publish-broker", file]

    assert main([*reach, *shares[0], "--publish", str(estimates)]) == 2
    assert "sotto combine --publish publishes those of all" in capsys.readouterr().err
    for first in (0, 6):
        publish(broker, topic, 6, first=first)
        for share in shares:
            assert main([*reach, *share]) == 0
        assert main(combine) == 0
        assert sunk(broker, estimates, sink).applied.written > 0
        assert results(sink) == results(summed)
    assert main(combine) == 0
    assert sunk(broker, estimates, sink) == Sunk()
    away = tmp_path / "away.json"
    away.write_text('{"servers": "127.0.0.1:1"}')
    publish(broker, topic, 1, first=12)
    for share in shares:
        assert main([*reach, *share]) == 0
    capsys.readouterr()
    assert main([*combine[:-1], str(away)]) == 2
    assert "is committed, but not published: " in capsys.readouterr().err
    assert main(combine) == 0
    sunk(broker, estimates, sink)
    assert results(sink) == results(summed)
