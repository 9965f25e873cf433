"""Files are named only when whole, and damage is an error."""

from __future__ import annotations

import errno
import os

import pytest

from pipelines.storage import files
from sotto.errors import FormatError


def test_every_damaged_byte_is_noticed(tmp_path):
    path = tmp_path / "file"
    files.create(path, files.with_checksum(b"counts", b"body"))
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(FormatError):
            files.load(path, b"counts")
        path.write_bytes(sound[:at])
        with pytest.raises(FormatError):
            files.load(path, b"counts")
    path.write_bytes(sound + b"\0")
    with pytest.raises(FormatError):
        files.load(path, b"counts")


def test_another_kind_is_refused(tmp_path):
    files.create(tmp_path / "file", files.with_checksum(b"counts", b"body"))
    with pytest.raises(FormatError, match="rejects"):
        files.load(tmp_path / "file", b"rejects")


@pytest.mark.parametrize("wrote", [0, 3])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, wrote):
    path = tmp_path / "file"
    files.replace(path, b"old content")
    real = os.write

    def write(descriptor: int, data: memoryview) -> int:
        if wrote and len(data) > wrote:
            return real(descriptor, data[:wrote])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "write", write)
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b"new content")
    assert path.read_bytes() == b"old content"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(files.os, "write", lambda descriptor, data: real(descriptor, data[:2]))
    files.create(tmp_path / "file", [b"some", bytearray(b" "), memoryview(b"content")])
    assert (tmp_path / "file").read_bytes() == b"some content"


def test_folders_are_nobody_elses(tmp_path):
    """Workers may write outside the state directory, whose folder is its owner's."""
    files.make_folder(tmp_path / "shared" / "states")
    assert (tmp_path / "shared" / "states").stat().st_mode & 0o007 == 0


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_of_another_where_a_file_is_written_is_not_followed(tmp_path, link):
    other, ours = tmp_path / "other", tmp_path / "ours"
    other.write_bytes(b"another's")
    link(other, tmp_path / "ours.new")
    files.replace(ours, b"ours")
    assert (other.read_bytes(), ours.read_bytes()) == (b"another's", b"ours")
