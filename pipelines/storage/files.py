"""Files that outlive a crash: written whole before they get their name, and checked when read.

Every file of a state that a run leaves is written here. Files of the driver lie in a local folder
and get their names once they are whole and durable (:func:`replace`). Files of workers lie in a
folder or on another of Beam's file systems: :func:`create` makes each under a name that no
other writer uses, and the driver moves those that count to their places. A binary file carries its
kind, a version and the CRC-32 of its body; a JSON document carries the SHA-256 of its content. So a
damaged file is an error, and never makes a wrong estimate.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sotto.errors import AggregationError, FormatError
from sotto.files import try_lock

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pipelines.storage.beam_files import BeamPath

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview

#: A function that is called after each step, with its name; tests kill the process in it.
Checkpoint: TypeAlias = Callable[[str], None]

#: A file in a folder, or on another file system.
AnyPath: TypeAlias = "Path | BeamPath"

#: Seconds between two attempts to take a lock.
_LOOK = 0.05
_HEAD = struct.Struct("<8sIIQ")
_VERSION = 1


class LostFileError(AggregationError, FileNotFoundError):
    """A file that is committed is not there."""


@contextmanager
def committed(path: AnyPath) -> Iterator[None]:
    """Map errors of reading a committed file to errors that name the file and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise LostFileError(f"{path} is not there, though it is committed: restore it") from error
    except FormatError as error:
        raise FormatError(f"{path} is damaged ({error}): restore it") from error


def place_of(text: str) -> AnyPath:
    """Return a folder, given as a path or as the URI of one of Beam's file systems."""
    if "://" not in text:
        return Path(text).absolute()
    # Importing Beam takes seconds; commands that only read a local state directory need not wait.
    from pipelines.storage.beam_files import BeamPath

    found = BeamPath(text.rstrip("/"))
    found.check()
    return found


def create(path: AnyPath, parts: Sequence[Buffer]) -> None:
    """Write a file that is not there yet; a local one is durable only after :func:`sync`."""
    if not isinstance(path, Path):
        path.create(parts)
        return
    with open(path, "xb", buffering=0) as file:
        for part in parts:
            _write_all(file.fileno(), part)


def replace(
    path: Path, content: bytes, checkpoint: Checkpoint = lambda step: None, mode: int = 0o666
) -> None:
    """Write a file so that, when this returns, it is durable under its name.

    An older file of this name stays until the new one is durable, and after any ``OSError``. The
    new one is written to ``NAME.new``; a file or a link of that name is removed first.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "wb", buffering=0) as file:
        _write_all(file.fileno(), content)
        os.fsync(file.fileno())
    checkpoint(f"{path.name} written")
    os.replace(temporary, path)
    checkpoint(f"{path.name} renamed")
    sync_directory(path.parent)


def lock_within(descriptor: int, seconds: float) -> bool:
    """Lock a file as soon as it is free; return False if it is not free within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK)
    return True


def _write_all(descriptor: int, part: Buffer) -> None:
    rest = memoryview(part).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def with_checksum(kind: bytes, body: Buffer) -> tuple[Buffer, Buffer]:
    """Return the content of a binary file: a head with its kind, up to 8 bytes, and the body."""
    return _HEAD.pack(kind, _VERSION, zlib.crc32(body), len(body)), body


def load(path: AnyPath, kind: bytes) -> memoryview:
    """Return the body of a file of :func:`with_checksum`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory) / "example"
    ...     create(path, with_checksum(b"example", b"body"))
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


def dump_document(value: Mapping[str, object]) -> bytes:
    """Return a JSON document as bytes, with the SHA-256 of the rest under the key ``digest``."""
    digest = hashlib.sha256(_canonical(value)).hexdigest()
    return _canonical({**value, "digest": digest}) + b"\n"


def load_document(content: bytes, name: str, known: int) -> Any:
    """Return a JSON document that :func:`dump_document` wrote, of the format ``known``.

    Raises AggregationError if its format is another one, or a byte differs from what was written.

    >>> stored = dump_document({"format": 1, "clock": 5})
    >>> load_document(stored, "example.json", 1)
    {'clock': 5, 'format': 1}
    """
    try:
        value = json.loads(content)
        found = value["format"]
        value.pop("digest", None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AggregationError(f"{name} is damaged: it is not the JSON of a document") from error
    if found != known:
        raise AggregationError(
            f"{name} has format {found}; this version reads {known}: use the release that wrote it "
            "(docs/operate/operations.md, Upgrading)"
        )
    if dump_document(value) != content:
        raise AggregationError(f"{name} is damaged: its digest does not match its content")
    return value


def find_note(kind: type[T], path: Path, known: int) -> T | None:
    """Return a dataclass that :func:`leave_note` left; None if it is missing or damaged."""
    try:
        value = load_document(path.read_bytes(), path.name, known)
        del value["format"]
        return kind(**value)
    except (OSError, AggregationError, TypeError):
        return None


def leave_note(note: DataclassInstance, path: Path, format: int) -> None:
    """Store a dataclass on which nothing depends, if the disk has room.

    If the disk is full, the present file is overwritten in place. A crash meanwhile damages it, and
    :func:`find_note` then returns None.
    """
    content = dump_document({"format": format, **asdict(note)})
    try:
        replace(path, content)
    except OSError:
        with suppress(OSError), open(path, "r+b") as file:
            file.write(content)
            file.truncate()


def _canonical(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def sync(paths: Iterable[AnyPath]) -> None:
    """Make local files durable, then their directories; other files are when they are created."""
    directories = set()
    for path in paths:
        if isinstance(path, Path):
            _sync(path, os.O_RDONLY)
            directories.add(path.parent)
    for directory in sorted(directories):
        sync_directory(directory)


def sync_directory(path: Path) -> None:
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(moves: Iterable[tuple[AnyPath, AnyPath]]) -> None:
    """Rename files, each within its file system; the new names are free."""
    remote = []
    for source, target in moves:
        if isinstance(source, Path) and isinstance(target, Path):
            os.replace(source, target)
        elif not isinstance(source, Path) and not isinstance(target, Path):
            remote.append((source, target))
    if remote:
        from pipelines.storage import beam_files

        beam_files.move(remote)


def remove(paths: Iterable[AnyPath]) -> None:
    """Remove files; a local one that is gone already is no error."""
    remote = []
    for path in paths:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
        else:
            remote.append(path)
    if remote:
        from pipelines.storage import beam_files

        beam_files.remove(remote)


def total_size(paths: Iterable[AnyPath]) -> int:
    local, remote = 0, []
    for path in paths:
        if isinstance(path, Path):
            local += path.stat().st_size
        else:
            remote.append(path)
    if not remote:
        return local
    from pipelines.storage import beam_files

    return local + beam_files.total_size(remote)


def listed(folder: AnyPath) -> list[AnyPath]:
    return [*folder.iterdir()] if isinstance(folder, Path) else [*folder.listed()]


def make_folder(folder: AnyPath, mode: int = 0o770) -> None:
    """Make a folder for its owner, and a group if the umask allows one: it has pseudonyms."""
    if isinstance(folder, Path):
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    else:
        folder.make_folder()


def remove_folder(folder: AnyPath) -> None:
    """Remove a folder of folders of files, while others may write there."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.remove_folder()
