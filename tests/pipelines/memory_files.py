"""A file system of Beam's in memory, ``mem://``, stricter than those that it stands for.

A file is there once it is closed, whole. Nothing is replaced: neither by a new file nor by a move.
Every call can be made to fail, or to be the last of its process.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

#: All files, by their whole names.
FILES: dict[str, bytes] = {}
#: Told of every change before it is made: what it is and of which file.
before: list[Callable[[str, str], None]] = []


def _note(change: str, path: str) -> None:
    for each in before:
        each(change, path)


class _Written(io.BytesIO):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        try:
            if not self.closed:
                _note("create", self._path)
                if self._path in FILES:
                    raise BeamIOError(f"{self._path} exists")
                FILES[self._path] = self.getvalue()
        finally:
            # Also of a failure: the garbage collector would close it, and make the file, later.
            super().close()


class MemoryFileSystem(FileSystem):
    """Beam finds it by its scheme."""

    @classmethod
    def scheme(cls) -> str:
        return "mem"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path in sorted(FILES):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(FILES[path]), 0)

    def create(self, path: str, mime_type: str = "", compression_type: str = "") -> _Written:
        return _Written(path)

    def open(self, path: str, mime_type: str = "", compression_type: str = "") -> io.BytesIO:
        if path not in FILES:
            raise BeamIOError(f"{path} is missing")
        return io.BytesIO(FILES[path])

    def copy(self, source_file_names: Sequence[str], destination_file_names: Sequence[str]) -> None:
        raise NotImplementedError

    def rename(
        self, source_file_names: Sequence[str], destination_file_names: Sequence[str]
    ) -> None:
        for source, target in zip(source_file_names, destination_file_names, strict=True):
            _note("rename", target)
            if source not in FILES or target in FILES:
                raise BeamIOError(f"{source} cannot be moved to {target}")
            FILES[target] = FILES.pop(source)

    def exists(self, path: str) -> bool:
        return path in FILES

    def size(self, path: str) -> int:
        return len(FILES[path])

    def checksum(self, path: str) -> str:
        raise NotImplementedError

    def last_updated(self, path: str) -> float:
        return 0.0

    def metadata(self, path: str) -> Any:
        return FileMetadata(path, len(FILES[path]), 0)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            _note("delete", path)
            if path not in FILES:
                raise BeamIOError(f"{path} is missing")
            del FILES[path]
