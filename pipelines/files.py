"""Files that outlive a crash: named only when whole, checked when read, synced before use.

Everything that a drain leaves on disk passes through here. A file is written beside its name
and renamed, so that a name never stands for half a file; :func:`sync` makes a batch of them
durable before a manifest refers to them. A binary file carries its kind, a version and the
CRC-32 of its body, so that damage is an error and never an estimate.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from sotto.errors import FormatError

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Told the name of a step just taken. Tests stop the process there.
Checkpoint: TypeAlias = Callable[[str], None]

_HEAD = struct.Struct("<8sIIQ")
_VERSION = 1


def write(path: Path, parts: Sequence[Buffer]) -> None:
    """Write a file under a temporary name and rename it; durable only after :func:`sync`.

    Parameters
    ----------
    path : Path
        Its directory exists. An older file of this name is replaced.
    parts : sequence of bytes-like
        Written one after another.

    Raises
    ------
    OSError
        Nothing of the new content is then visible under ``path``.
    """
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb", buffering=0) as file:
        for part in parts:
            _write_all(file.fileno(), part)
    os.replace(temporary, path)


def _write_all(descriptor: int, part: Buffer) -> None:
    rest = memoryview(part).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def store(path: Path, kind: bytes, body: Buffer) -> None:
    """Write a binary file of a kind, with its checksum, as :func:`write` does.

    Parameters
    ----------
    path : Path
        Where.
    kind : bytes
        At most 8 bytes that say what the body is.
    body : bytes-like
        The content.
    """
    write(path, (_HEAD.pack(kind, _VERSION, zlib.crc32(body), len(body)), body))


def load(path: Path, kind: bytes) -> memoryview:
    """Return the body of a file written by :func:`store`.

    Raises
    ------
    FormatError
        The file is of another kind or version, cut short or damaged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory) / "example"
    ...     store(path, b"example", b"body")
    ...     bytes(load(path, b"example"))
    b'body'
    """
    content = path.read_bytes()
    if len(content) < _HEAD.size:
        raise FormatError(f"{path.name} is cut short")
    found, version, checksum, length = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if found.rstrip(b"\0") != kind or version != _VERSION:
        raise FormatError(f"{path.name} is not a {kind.decode()} file of version {_VERSION}")
    if len(body) != length or zlib.crc32(body) != checksum:
        raise FormatError(f"{path.name} is damaged: its checksum does not match")
    return body


def sync(paths: Iterable[Path]) -> None:
    """Make files durable, then the directories that name them."""
    directories = set()
    for path in paths:
        _sync(path, os.O_RDONLY)
        directories.add(path.parent)
    for directory in sorted(directories):
        sync_directory(directory)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes, checkpoint: Checkpoint = lambda step: None) -> None:
    """Write a file so that, when this returns, it is durable under its name.

    Parameters
    ----------
    path : Path
        An older file of this name stands until the new one is durable.
    content : bytes
        What is to be in it.
    checkpoint : callable
        Told of each step; tests stop the process there.
    """
    temporary = path.with_name(path.name + ".new")
    write(temporary, (content,))
    _sync(temporary, os.O_RDONLY)
    checkpoint(f"{path.name} written")
    os.replace(temporary, path)
    checkpoint(f"{path.name} renamed")
    sync_directory(path.parent)


def remove(paths: Iterable[Path]) -> None:
    """Remove files; one that is gone already is no error."""
    for path in paths:
        path.unlink(missing_ok=True)
