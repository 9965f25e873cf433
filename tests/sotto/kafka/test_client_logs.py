"""What commands print of kafka-python's lines: nothing, unless somebody asks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clientsdk.testing import small_plan

pytest.importorskip("kafka")


@pytest.fixture
def rude() -> Iterator[str]:
    """The address of a server that takes connections and closes them at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    server.accept()[0].close()
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(300)


def errors(rude: str, folder: Path, *command: str, **variables: str) -> list[str]:
    """Return what a command prints on standard error."""
    (folder / "plan.json").write_bytes(small_plan().to_json())
    done = subprocess.run(
        [sys.executable, "-m", "sotto.cli", *command, "--kafka", rude, "--topic", "reports-e1-p1"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stderr.splitlines()


AGGREGATE = ("aggregate", "--plan", "plan.json", "--state", "state")


@pytest.mark.slow
def test_our_error_is_the_only_line(rude: str, tmp_path: Path) -> None:
    (line,) = errors(rude, tmp_path, *AGGREGATE)
    assert line.startswith("sotto: error: ")
    assert "does not let us in" in line


@pytest.mark.slow
def test_kafkas_lines_are_there_for_whoever_asks(rude: str, tmp_path: Path) -> None:
    *lines, last = errors(rude, tmp_path, *AGGREGATE, SOTTO_KAFKA_LOG="ERROR")
    assert lines
    assert lines[0].startswith("ERROR:kafka.")
    assert last.startswith("sotto: error: ")


def test_what_is_asked_for_is_a_level(rude: str, tmp_path: Path) -> None:
    (line,) = errors(rude, tmp_path, *AGGREGATE, SOTTO_KAFKA_LOG="loud")
    assert "SOTTO_KAFKA_LOG='loud' must be one of INFO" in line
