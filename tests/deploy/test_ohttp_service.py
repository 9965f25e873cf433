"""The gateway's program: built once, and what is said where it cannot be. Go is played."""

from __future__ import annotations

import pytest

from deploy.errors import MissingToolError, UnavailableError
from deploy.ohttp import __main__ as command
from deploy.ohttp import service


@pytest.fixture
def go(tmp_path, monkeypatch):
    """A function that writes a program ``go``; before, there is none."""
    monkeypatch.setattr(service, "BUILT", tmp_path / "built")
    monkeypatch.setattr(service.shutil, "which", lambda name, path="": None)

    def write(script: str) -> None:
        program = tmp_path / "go"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        program.chmod(0o755)
        monkeypatch.setattr(service.shutil, "which", lambda name, path="": str(program))

    return write


def test_it_is_built_once_until_a_source_changes(go, tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "main.go").write_text("package main")
    go('test "$GOTOOLCHAIN" = local && echo built > "$5"')
    built = service.program(sources)
    assert built.read_text() == "built\n"
    go("exit 1")
    assert service.program(sources) == built
    (sources / "main.go").write_text("package other")
    with pytest.raises(UnavailableError):
        service.program(sources)


def test_without_go_the_error_says_what_to_install(go, capsys, monkeypatch, tmp_path):
    with pytest.raises(MissingToolError, match="Go 1"):
        service.program()
    monkeypatch.setattr(command, "BUILT", tmp_path / "built")
    monkeypatch.setattr("sys.argv", ["ohttp", "start", "--port", "0"])
    assert command.main() == 2
    assert "ohttp: error: Go is not installed" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["ohttp", "stop"])
    assert command.main() == 0
    assert capsys.readouterr().out == "no gateway is running\n"


def test_what_go_says_is_in_the_error(go):
    go("echo 'no such module' >&2; exit 1")
    with pytest.raises(UnavailableError, match="go build: no such module"):
        service.program()
