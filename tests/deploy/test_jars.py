"""Archives in the cache: what is fetched, what is checked, what is said. Maven is played."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from deploy import jars
from deploy.errors import DeployError, MissingToolError, UnavailableError

CONTENT = {"a-1.jar": b"one", "b-2.jar": b"two"}


def program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    path.chmod(0o755)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder that pins two archives, a Maven that brings them, and an empty cache."""
    folder = tmp_path / "service"
    folder.mkdir()
    (folder / "pom.xml").write_text("<project/>", encoding="ascii")
    lines = [f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in CONTENT.items()]
    (folder / "jars.sha256").write_text("".join(lines), encoding="ascii")
    programs = tmp_path / "bin"
    programs.mkdir()
    write = "; ".join(f'printf {body.decode()} > "$to/{name}"' for name, body in CONTENT.items())
    program(
        programs,
        "mvn",
        'for a in "$@"; do case $a in -DoutputDirectory=*) to=${a#*=};; esac; done\n'
        f'mkdir -p "$to"; {write}',
    )
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("SOTTO_CACHE", str(tmp_path / "cache"))
    return folder


def maven(source, script):
    program(source.parent / "bin", "mvn", script)


def test_what_is_pinned_is_fetched_once(source):
    folder = jars.jars("service", source)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
    maven(source, "exit 1")
    assert jars.jars("service", source) == folder


def test_another_list_is_another_folder(source):
    before = jars.jars("service", source)
    pins = source / "jars.sha256"
    pins.write_text("\n".join(reversed(pins.read_text("ascii").splitlines())), encoding="ascii")
    assert jars.jars("service", source) != before


@pytest.mark.parametrize("change", ["other bytes", "one missing", "one more"])
def test_what_is_not_pinned_never_enters_the_cache(source, change):
    scripts = {
        "other bytes": "printf other > a-1.jar; printf two > b-2.jar",
        "one missing": "printf one > a-1.jar",
        "one more": "printf one > a-1.jar; printf two > b-2.jar; printf x > c-3.jar",
    }
    find = 'for a in "$@"; do case $a in -DoutputDirectory=*) to=${a#*=};; esac; done\n'
    find += 'mkdir "$to"; cd "$to"\n'
    maven(source, find + scripts[change])
    with pytest.raises(DeployError, match="pinned"):
        jars.jars("service", source)
    assert [path.name for path in jars.cache_folder().iterdir()] == ["lock"]


def test_a_damaged_cache_is_told(source):
    folder = jars.jars("service", source)
    (folder / "a-1.jar").write_bytes(b"changed")
    with pytest.raises(DeployError, match=r"damaged; remove .* and start again: a-1.jar"):
        jars.jars("service", source)


def test_a_fetch_that_fails_says_why(source):
    maven(source, "echo '[ERROR] Network is unreachable'; exit 1")
    with pytest.raises(UnavailableError, match="with a network, try again: Network is unreachable"):
        jars.jars("service", source)


def test_a_missing_maven_is_told_unless_the_cache_is_full(source, monkeypatch):
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingToolError, match="Maven is not installed: install it"):
        jars.jars("service", source)
    monkeypatch.setenv("PATH", path)
    folder = jars.jars("service", source)
    monkeypatch.setenv("PATH", "/nowhere")
    assert jars.jars("service", source) == folder


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "Java is not installed: install Java 17"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11: install Java 17 or newer"),
        ("echo 'version \"1.8.0\"' >&2", "is Java 1: install"),
        ("exit 3", "does not say its version"),
    ],
)
def test_a_java_that_will_not_do_is_told(tmp_path, monkeypatch, script, message):
    if script is not None:
        program(tmp_path, "java", script)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(MissingToolError, match=message):
        jars.java()


def test_kafka_is_pinned_in_full():
    source = Path(jars.__file__).parent / "kafka"
    lines = (source / "jars.sha256").read_text("ascii").splitlines()
    names = [line.split("  ")[1] for line in lines]
    assert names == sorted(set(names))
    version = "4.3.1"
    assert f"<version>{version}</version>" in (source / "pom.xml").read_text("ascii")
    assert f"kafka_2.13-{version}.jar" in names
