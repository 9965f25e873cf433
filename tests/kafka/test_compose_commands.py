"""The commands of docker-compose.yml, run here against a real broker, one after another."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from aggregated import read_all
from compose_files import WHOLE
from kafka.errors import TopicAuthorizationFailedError
from serving import running, status, wait_until

from clientsdk import Broker, KafkaPublisher
from clientsdk.testing import FakeClock
from deploy.images import passwords
from deploy.kafka.broker import START_SECONDS, LocalBroker
from deploy.ports import HOST, free_ports
from deploy.process import start_seconds
from examples.compose.__main__ import PLAN, send
from sotto.errors import BrokerError
from sotto.kafka.admin import connected
from sotto.kafka.topics import ReportTopic
from sotto.plan.compile import load_plan
from sotto_cli import main

pytestmark = pytest.mark.slow

SERVICES = WHOLE.services
DEVICES = 30


class Contained(LocalBroker):
    """A broker with the settings of the container; places are those of this machine.

    Parameters
    ----------
    folder : Path
    keys : Path
        Folders of keys, as ``make compose-up`` makes them.
    """

    def __init__(self, folder: Path, keys: Path) -> None:
        super().__init__(folder, heap=192)
        self._keys = keys
        self.inside = ""

    def client_file_of(self, role: str) -> Path:
        """Return how to reach the broker as who has a folder of keys."""
        says = json.loads((self._keys / role / "client.json").read_text("utf-8"))
        says["servers"] = self.inside if says["servers"] == passwords.INSIDE else self.servers
        for name in ("ca", "certificate", "key"):
            says[name] = str(self._keys / role / Path(says[name]).name)
        path = self.folder / f"{role}.json"
        path.write_text(json.dumps(says), encoding="utf-8")
        return path

    def _passwords(self) -> dict[str, str]:
        return {}

    def _write_configuration(self, ports: tuple[int, int], passwords: dict[str, str]) -> None:
        outside, controller = ports
        (inside,) = free_ports(1)
        self.inside = f"{HOST}:{inside}"
        said = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value.replace("$$", "$")
            for name, value in SERVICES["kafka"]["environment"].items()
        }
        for name in ("heap.opts", "controller.quorum.voters"):
            del said[name]
        served = f"HOST://{HOST}:{outside},CLIENT://{self.inside}"
        said |= {
            "listeners": f"{served},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": served,
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        text = "".join(f"{name}={value}\n" for name, value in said.items())
        text = text.replace("=/keys/", f"={self._keys / 'kafka'}/")
        self._properties.write_text(text, encoding="ascii")
        self.client_file.write_text(json.dumps({"servers": f"{HOST}:{outside}"}), encoding="ascii")

    def _wait_until_it_answers(self, port: int) -> None:
        deadline = time.monotonic() + start_seconds(START_SECONDS)
        while True:
            try:
                with connected(Broker.from_file(self.client_file_of("admin"))):
                    return
            except BrokerError:
                assert self.running, self._process.last_error()
                assert time.monotonic() < deadline
                time.sleep(0.1)


@pytest.fixture(scope="module")
def contained(archives, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compose")
    passwords.make(folder / "made")
    broker = Contained(folder / "broker", folder / "made" / "keys")
    broker.start()
    yield broker
    broker.stop()


class Here:
    """Runs the commands of services with what this machine has in the place of other containers."""

    def __init__(self, contained: Contained, folder: Path) -> None:
        self._contained = contained
        (self.port,) = free_ports(1)
        self._places = {
            r"/plans": str(PLAN.parent),
            r"/var/lib/(sotto|alerts)": str(folder),
            r"postgresql\+psycopg://\S+": f"sqlite:///{folder / 'results.db'}",
            # Commands that go on until they are stopped end here.
            r" --follow": "",
            r"^exporter": "exporter --once",
            r"/run/secrets": str(folder),
            r"--listen 0.0.0.0": f"--port {self.port}",
        }

    def run(self, service: str) -> int:
        return main(self.words(service))

    def words(self, service: str) -> list[str]:
        """Return the command's words, as this machine takes them."""
        mounted = f":{passwords.MOUNTED}:ro"
        (keys,) = (each for each in SERVICES[service]["volumes"] if each.endswith(mounted))
        file = self._contained.client_file_of(keys.removesuffix(mounted).rpartition("/")[2])
        return WHOLE.command(service, {"/keys/client.json": file, **self._places})


def test_the_engine_that_aggregates_counts_what_devices_send(contained, tmp_path, capsys):
    here = Here(contained, tmp_path)
    assert here.run("topics") == 0
    said = capsys.readouterr().out
    topic = "answers-e1-p4"
    assert topic in said
    # Again, as it is at every start.
    assert here.run("topics") == 0
    clock = FakeClock(time.time_ns() // 1_000_000 - 120_000)
    device = Broker.from_file(contained.client_file_of("devices"))
    publisher = KafkaPublisher(device, topic, timeout=600)
    plan = load_plan(PLAN).compile()
    sent = send(plan, publisher, DEVICES, clock, lambda s: clock.advance(ms=int(s * 1000)))
    publisher.close()
    with pytest.raises(TopicAuthorizationFailedError):
        read_all(device, ReportTopic.parse(topic))
    assert sent == DEVICES * 3 * 2
    assert here.run("aggregate") == 0
    capsys.readouterr()
    assert here.run("aggregate-exporter") == 0
    shown = capsys.readouterr().out
    whose = 'collector="compose.example"'
    assert f"sotto_reports_read_total{{{whose}}} {sent:.1f}" in shown
    assert f'sotto_source_status{{{whose},source="log",status="ok"}} 1.0' in shown
    assert re.search(r'^sotto_estimate\{.*item="dark",.*metric="theme"', shown, re.MULTILINE)
    assert f"sotto_lag_records{{{whose}}} 0.0" in shown
    token = "a-token-of-this-test-alone"
    (tmp_path / "token").write_text(token)
    serve = [sys.executable, "-m", "sotto", *here.words("aggregate-serve")]
    with running(serve, tmp_path / "serve.log"):
        url = f"http://{HOST}:{here.port}"
        wait_until(lambda: status(here.port))
        asked = urllib.request.Request(
            f"{url}/health", headers={"Authorization": f"Bearer {token}"}
        )

        def page() -> str:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return str(answer.read().decode())

        # The page shows the topic's records once the server has looked there.
        wait_until(lambda: "not counted yet" in page())
        assert "Nothing is wrong with the job" in page()
        wait_until((tmp_path / "alerts.json").exists)


def test_the_sink_and_the_exporter_of_the_other_engine_begin_with_nothing(
    contained, tmp_path, capsys
):
    here = Here(contained, tmp_path)
    assert here.run("topics") == 0
    assert here.run("sink") == 0
    capsys.readouterr()
    assert here.run("exporter") == 0
    shown = capsys.readouterr().out
    whose = 'collector="compose.example"'
    assert f'sotto_source_status{{{whose},source="documents",status="ok"}} 1.0' in shown
    assert f'sotto_source_status{{{whose},source="log",status="missing"}} 1.0' in shown
    assert f"sotto_sink_lag_records{{{whose}}} 0.0" in shown
    assert "sotto_period_allowed_epsilon" in shown
