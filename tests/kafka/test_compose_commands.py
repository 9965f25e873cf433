"""The commands of docker-compose.yml, run here against a real broker, one after another."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest
import yaml

from clientsdk import Broker, KafkaPublisher
from clientsdk.testing import FakeClock
from deploy.kafka.broker import LocalBroker
from examples.compose.__main__ import PLAN, send
from sotto.cli import main
from sotto.plan import load_plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
DEVICES = 30


class Here:
    """Runs the commands of services with what this machine has in the place of other containers."""

    def __init__(self, local: LocalBroker, folder: Path) -> None:
        self._places = {
            r"kafka:19092": local.servers,
            r"/plans": str(PLAN.parent),
            r"/var/lib/sotto": str(folder),
            r"postgresql\+psycopg://\S+": f"sqlite:///{folder / 'results.db'}",
            # What goes on until it is stopped ends here.
            r" --follow": "",
            r"^exporter": "exporter --once",
        }

    def run(self, service: str) -> int:
        """Run a service's command."""
        command = " ".join(SERVICES[service]["command"].split())
        for container, here in self._places.items():
            command = re.sub(container, here, command)
        return main(shlex.split(command))


def test_the_engine_that_drains_counts_what_devices_send(
    local: LocalBroker, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(local, tmp_path)
    assert here.run("topics") == 0
    said = capsys.readouterr().out
    topic = "answers-e1-p4"
    assert topic in said
    # Again, as it is at every start.
    assert here.run("topics") == 0
    clock = FakeClock(time.time_ns() // 1_000_000 - 120_000)
    publisher = KafkaPublisher(broker, topic)
    plan = load_plan(PLAN).compile()
    sent = send(plan, publisher, DEVICES, clock, lambda s: clock.advance(ms=int(s * 1000)))
    publisher.close()
    assert sent == DEVICES * 3 * 2
    assert here.run("drain") == 0
    capsys.readouterr()
    assert here.run("drain-exporter") == 0
    shown = capsys.readouterr().out
    assert f"sotto_reports_read_total {sent:.1f}" in shown
    assert 'sotto_source_status{source="log",status="ok"} 1.0' in shown
    assert re.search(r'^sotto_estimate\{.*item="dark",.*metric="theme"', shown, re.MULTILINE)
    assert "sotto_lag_records 0.0" in shown


def test_the_sink_and_the_exporter_of_the_other_engine_begin_with_nothing(
    local: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(local, tmp_path)
    assert here.run("topics") == 0
    assert here.run("sink") == 0
    capsys.readouterr()
    assert here.run("exporter") == 0
    shown = capsys.readouterr().out
    assert 'sotto_source_status{source="documents",status="ok"} 1.0' in shown
    assert 'sotto_source_status{source="log",status="missing"} 1.0' in shown
    assert "sotto_sink_lag_records 0.0" in shown
    assert "sotto_period_allowed_epsilon" in shown
