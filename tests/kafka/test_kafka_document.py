"""Commands of ``docs/operate/kafka.md`` work with a real broker."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sotto.kafka.topics import MAX_BATCH
from sotto_cli import main

pytestmark = pytest.mark.slow

DOCUMENT = (Path(__file__).parents[2] / "docs" / "operate" / "kafka.md").read_text("utf-8")


def test_its_commands_about_topics_work(local, secured, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (plan,) = re.findall(r"```yaml\n(collector:.*?)```", DOCUMENT, re.DOTALL)
    (tmp_path / "plan.yaml").write_text(plan, encoding="utf-8")
    assert main(["plan", "compile", "plan.yaml"]) == 0
    commands = re.findall(r"^sotto (topics .*)$", DOCUMENT.replace("\\\n", " "), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        typed = command.replace("build/kafka/plain/client.json", str(local.client_file))
        typed = typed.replace("build/kafka/tls/client.json", str(secured.client_file))
        assert main(shlex.split(typed)) == 0, capsys.readouterr().err


def test_its_figures_are_the_codes():
    assert f"at least {MAX_BATCH}" in DOCUMENT
    pom = (Path(__file__).parent.parent.parent / "deploy" / "kafka" / "pom.xml").read_text("utf-8")
    assert re.search(r"Apache Kafka ([\d.]+) in KRaft", DOCUMENT)[1] in pom
