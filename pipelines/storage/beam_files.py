"""Files on Beam's file systems other than folders: ``gs://``, ``s3://``, ``hdfs://`` and others.

No file is replaced: each is created once, under a name of its own, and moved at most once, to a
name that is free. So the store need not rename atomically, nor replace files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from sotto.errors import ParameterError

_AS_IT_IS = CompressionTypes.UNCOMPRESSED


@dataclass(frozen=True, order=True)
class BeamPath:
    """A file or folder, such as ``gs://bucket/folder``, that Beam knows by its scheme."""

    uri: str

    def __truediv__(self, name: str) -> BeamPath:
        return BeamPath(f"{self.uri}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def parent(self) -> BeamPath:
        return BeamPath(self.uri.rpartition("/")[0])

    def check(self) -> None:
        """Raise ParameterError if Beam has no file system for the path, or lacks its package."""
        try:
            FileSystems.get_filesystem(self.uri)
        except ValueError as error:
            raise ParameterError(f"Beam has no file system for {self.uri}: {error}") from error

    def read_bytes(self) -> bytes:
        try:
            with FileSystems.open(self.uri, compression_type=_AS_IT_IS) as file:
                content: bytes = file.read()
                return content
        except OSError as error:
            if FileSystems.exists(self.uri):
                raise
            raise FileNotFoundError(f"{self.uri} is not there") from error

    def create(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        with FileSystems.create(self.uri, compression_type=_AS_IT_IS) as file:
            for part in parts:
                file.write(bytes(part))

    def make_folder(self) -> None:
        if not FileSystems.exists(self.uri):
            FileSystems.mkdirs(self.uri)

    def listed(self) -> list[BeamPath]:
        return [*self.sizes()]

    def remove_folder(self) -> None:
        remove([BeamPath(found.path) for found in self._matching("*/*")])

    def sizes(self) -> dict[BeamPath, int]:
        return {BeamPath(found.path): found.size_in_bytes for found in self._matching("*")}

    def _matching(self, pattern: str) -> list[FileMetadata]:
        (found,) = FileSystems.match([f"{self.uri}/{pattern}"])
        matching: list[FileMetadata] = found.metadata_list
        return matching


def move(moves: Sequence[tuple[BeamPath, BeamPath]]) -> None:
    """Rename files to names that are free."""
    if moves:
        sources, targets = zip(*moves, strict=True)
        FileSystems.rename([str(path) for path in sources], [str(path) for path in targets])


def remove(paths: Sequence[BeamPath]) -> None:
    if paths:
        FileSystems.delete([path.uri for path in paths])


def total_size(paths: Iterable[BeamPath]) -> int:
    folders: dict[BeamPath, dict[BeamPath, int]] = {}
    total = 0
    for path in paths:
        if path.parent not in folders:
            folders[path.parent] = path.parent.sizes()
        if path not in folders[path.parent]:
            raise FileNotFoundError(f"{path} is not there")
        total += folders[path.parent][path]
    return total
