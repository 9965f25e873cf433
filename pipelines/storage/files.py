"""Files that outlive a crash: named only when whole, checked when read, synced before use.

Everything that a run leaves passes through here. What the driver writes lies in a folder: it is
written beside its name and renamed, so that a name never stands for half a file. What workers
write may lie in a folder or on another of Beam's file systems: :func:`create` makes it under a
name that nobody else uses, and the driver moves what counts to its place. :func:`sync` makes a
batch of files durable before a manifest refers to them. A binary file carries its kind, a version
and the CRC-32 of its body, so that damage is an error and never an estimate.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sotto.errors import AggregationError, FormatError

if TYPE_CHECKING:
    from pipelines.storage.beam_files import BeamPath

Buffer: TypeAlias = bytes | bytearray | memoryview

#: Told the name of a step just taken. Tests stop the process there.
Checkpoint: TypeAlias = Callable[[str], None]

#: A file in a folder, or on another file system.
AnyPath: TypeAlias = "Path | BeamPath"

_HEAD = struct.Struct("<8sIIQ")
_VERSION = 1


class LostFileError(AggregationError, FileNotFoundError):
    """A file that is committed is not there."""


@contextmanager
def committed(path: AnyPath) -> Iterator[None]:
    """Refuse a committed file by its name where it is damaged or not there.

    Raises
    ------
    FormatError, LostFileError
    """
    try:
        yield
    except FileNotFoundError as error:
        raise LostFileError(f"{path} is not there, though it is committed: restore it") from error
    except FormatError as error:
        raise FormatError(f"{path} is damaged ({error}): restore it") from error


def place_of(text: str) -> AnyPath:
    """Return a folder, given as a path or as the URI of one of Beam's file systems.

    Raises
    ------
    ParameterError
        Beam has no such file system.
    """
    if "://" not in text:
        return Path(text).absolute()
    from pipelines.storage.beam_files import BeamPath

    found = BeamPath(text.rstrip("/"))
    found.check()
    return found


def create(path: AnyPath, parts: Sequence[Buffer]) -> None:
    """Write a file that is not there yet; in a folder, durable only after :func:`sync`.

    Raises
    ------
    OSError
        What there is under ``path`` then may be less than all.
    """
    if not isinstance(path, Path):
        path.create(parts)
        return
    with open(path, "xb", buffering=0) as file:
        for part in parts:
            _write_all(file.fileno(), part)


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


def sealed(kind: bytes, body: Buffer) -> tuple[Buffer, Buffer]:
    """Return what a binary file of a kind holds: its head with the checksum, and the body.

    Parameters
    ----------
    kind : bytes
        At most 8 bytes that say what the body is.
    body : bytes-like
    """
    return _HEAD.pack(kind, _VERSION, zlib.crc32(body), len(body)), body


def load(path: AnyPath, kind: bytes) -> memoryview:
    """Return the body of a file that is :func:`sealed`.

    Raises
    ------
    FormatError
        The file is of another kind or version, cut short or damaged.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory) / "example"
    ...     create(path, sealed(b"example", b"body"))
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


def move(moves: Sequence[tuple[AnyPath, AnyPath]]) -> None:
    """Give files other names, each within its file system; nothing else has these names."""
    local = [(one, other) for one, other in moves if isinstance(one, Path)]
    for one, other in local:
        os.replace(one, cast(Path, other))
    if len(local) < len(moves):
        from pipelines.storage import beam_files as beamfiles

        beamfiles.move(cast("list[tuple[BeamPath, BeamPath]]", moves))


def sync(paths: Iterable[AnyPath]) -> None:
    """Make files durable, then the directories that name them; others than local ones are."""
    directories = set()
    for path in paths:
        if isinstance(path, Path):
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


def remove(paths: Iterable[AnyPath]) -> None:
    """Remove files; one that is gone already is no error."""
    other = []
    for path in paths:
        if isinstance(path, Path):
            path.unlink(missing_ok=True)
        else:
            other.append(path)
    if other:
        from pipelines.storage import beam_files as beamfiles

        beamfiles.remove(other)


def listed(folder: AnyPath) -> list[AnyPath]:
    """Return what is in a folder."""
    return [*folder.iterdir()] if isinstance(folder, Path) else [*folder.listed()]


def make_folder(folder: AnyPath, mode: int = 0o770) -> None:
    """Make a folder and those that it is in, where they are not there.

    What is in it has pseudonyms: its owner reads it, and a group that the umask lets in.
    """
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


def total_size(paths: Iterable[AnyPath]) -> int:
    """Return the bytes that files have together.

    Raises
    ------
    FileNotFoundError
        One is not there.
    """
    local, other = 0, []
    for path in paths:
        if isinstance(path, Path):
            local += path.stat().st_size
        else:
            other.append(path)
    if not other:
        return local
    from pipelines.storage import beam_files as beamfiles

    return local + beamfiles.total_size(other)


def dump_document(value: Mapping[str, object]) -> bytes:
    """Return a JSON document as it is stored: equal documents, equal bytes.

    The key ``digest`` is added: the SHA-256, in hexadecimal, of the document without it.
    """
    digest = hashlib.sha256(_canonical(value)).hexdigest()
    return _canonical({**value, "digest": digest}) + b"\n"


def load_document(content: bytes, name: str, known: int) -> Any:
    """Return a stored JSON document of a known format.

    Raises
    ------
    AggregationError
        It is not one, or a byte of it is not as :func:`dump_document` wrote it.

    Examples
    --------
    >>> stored = dump_document({"format": 1, "clock": 5})
    >>> load_document(stored, "example.json", 1)
    {'clock': 5, 'format': 1}
    >>> load_document(stored.replace(b"5", b"6", 1), "example.json", 1)
    Traceback (most recent call last):
    ...
    sotto.errors.AggregationError: example.json is damaged: its digest does not match its content
    """
    try:
        value = json.loads(content)
        found = value["format"]
        value.pop("digest", None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AggregationError(f"{name} is damaged: it is not the JSON of a document") from error
    if found != known:
        raise AggregationError(f"{name} has format {found}; this version reads {known}")
    if dump_document(value) != content:
        raise AggregationError(f"{name} is damaged: its digest does not match its content")
    return value


def _canonical(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
