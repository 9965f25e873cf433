"""The runner that is mended: two calls of one class are gone, and nothing else is changed."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from deploy.errors import DeployError
from deploy.flink import remainders

CODE = b"before" + b"\0".join(remainders._APPENDED) + b"after"


def archive(folder: Path, content: bytes, level: int = 9) -> Path:
    path = folder / remainders._ARCHIVE
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as made:
        made.writestr("META-INF/", b"")
        made.writestr(remainders._CLASS, content)
        made.writestr("other.class", content)
    return path


def test_two_calls_are_taken_out_of_one_class(tmp_path):
    path = archive(tmp_path, CODE)
    remainders.mend(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    with zipfile.ZipFile(path) as mended:
        assert mended.namelist() == ["META-INF/", remainders._CLASS, "other.class"]
        assert mended.read(remainders._CLASS) == b"before" + bytes(9) + b"after"
        assert mended.read("other.class") == CODE


def test_the_bytes_do_not_depend_on_how_they_were_compressed(tmp_path):
    digests = set()
    for level in (1, 9):
        path = archive(tmp_path, CODE + bytes(range(256)) * 9, level)
        remainders.mend(tmp_path)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_another_beam_is_refused(tmp_path):
    with pytest.raises(DeployError, match="there is no"):
        remainders.mend(tmp_path)
    for content in (b"nothing of that", CODE + CODE):
        archive(tmp_path, content)
        with pytest.raises(DeployError, match="known"):
            remainders.mend(tmp_path)
