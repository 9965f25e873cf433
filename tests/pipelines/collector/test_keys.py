"""Files of app keys: changed as a whole, read again, never given up for a damaged one."""

from __future__ import annotations

import json
import os

import pytest
from waiting import at_once

from pipelines.collector import keys
from pipelines.collector.keys import AppKeys, drop_key, new_key
from sotto.errors import ParameterError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def test_a_new_file_is_its_owners_alone_and_keeps_its_mode(tmp_path, path):
    before = os.umask(0)
    try:
        new_key(path, "app")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    new_key(path, "app")
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["keys.json"]


def test_the_file_has_hashes_alone(path):
    made = [new_key(path, app) for app in ("app", "app", "other")]
    assert len({*made}) == 3
    assert not any(key in path.read_text() for key in made)
    apps = json.loads(path.read_text())["apps"]
    assert {app: len(digests) for app, digests in apps.items()} == {"app": 2, "other": 1}


def test_keys_made_at_one_time_are_all_kept(path):
    made: list[str] = []
    at_once(lambda _: made.append(new_key(path, "app")), range(12))
    found = AppKeys(path)
    assert [found.app_of(key) for key in made] == ["app"] * 12


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, path, monkeypatch):
    key = new_key(path, "app")
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keys.os, "fsync", full)
    for change in (lambda: new_key(path, "app"), lambda: drop_key(path, key)):
        with pytest.raises(OSError, match="No space"):
            change()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["keys.json"]


def test_a_changed_file_is_read_again_and_a_damaged_one_is_not(path):
    first = new_key(path, "app")
    warned: list[str] = []
    found = AppKeys(path, warned.append)
    second = new_key(path, "app")
    assert found.app_of(second) is None
    found.reload()
    assert (found.app_of(first), found.app_of(second)) == ("app", "app")

    good = path.read_bytes()
    for damage in (b"", good[:-9], b'{"apps": {"app": 7}}', b'{"keys": {}}', b"\xff"):
        path.write_bytes(damage)
        for _ in range(3):
            found.reload()
        assert found.app_of(first) == "app"
    path.unlink()
    found.reload()
    assert found.app_of(first) == "app"
    # Once for each reason.
    assert len(warned) == len({*warned}) >= 2
    assert all(first not in each for each in warned)

    path.write_bytes(good)
    drop_key(path, first)
    found.reload()
    assert (found.app_of(first), found.app_of(second)) == (None, "app")


@pytest.mark.parametrize("app", ["", "a b", "-a", "a" * 65, "ä", "a/b"])
def test_names_of_apps_are_checked(tmp_path, app):
    with pytest.raises(ParameterError, match="1 to 64 letters"):
        new_key(tmp_path / "keys.json", app)


def test_a_key_that_nobody_has_cannot_be_dropped(path):
    with pytest.raises(ParameterError, match="key"):
        drop_key(path, "a")
    assert not path.exists()


def test_a_file_of_something_else_is_not_touched(path):
    path.write_text('{"version": 1}')
    with pytest.raises(ParameterError, match="keys"):
        new_key(path, "app")
    assert path.read_text() == '{"version": 1}'
