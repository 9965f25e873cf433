"""Notes on the axis of time, such as releases: a YAML file to which the HTTP interface adds."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, StringConstraints

from pipelines.results.fields import moment
from pipelines.storage.yaml_files import YamlModel, read_yaml
from sotto.plan.durations import parse_time

#: Bytes of a request that adds a note, at most.
NOTE_BYTES = 4096


def _time(given: object) -> datetime:
    if isinstance(given, datetime) and given.tzinfo is not None:
        return given.astimezone(UTC)
    # YAML reads 2026-03-01 as a date.
    return moment(parse_time(str(given)))


class TimeNote(YamlModel):
    """A note: when something happened, and what it was."""

    at: Annotated[datetime, BeforeValidator(_time, json_schema_input_type=str)]
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]


_LIST = tuple[TimeNote, ...]


class Notes:
    """The notes of a file, which is a list of YAML; each :meth:`read` reads the file.

    Parameters
    ----------
    path : Path
        It need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    @property
    def stamp(self) -> int:
        """A number that changes with the file; 0 without one."""
        with suppress(FileNotFoundError):
            return self._path.stat().st_mtime_ns
        return 0

    def read(self) -> list[TimeNote]:
        """Return the notes by time; ParameterError if the file is no list of notes."""
        with suppress(FileNotFoundError):
            return sorted(read_yaml(self._path, _LIST, []), key=lambda note: note.at)
        return []

    def add(self, note: TimeNote) -> None:
        """Append a note; it is on the disk when this returns.

        Raises ParameterError, and writes nothing, if the file could not be read with the note;
        OSError if the disk is full, and then no part of the note stays.
        """
        # The line break in front is for a file whose last line has none.
        more = f"\n- {json.dumps(note.model_dump(mode='json'), ensure_ascii=False)}\n".encode()
        with self._lock, open(self._path, "ab", buffering=0) as file:
            read_yaml(self._path, _LIST, [], more.decode())
            if (written := file.write(more)) < len(more):
                file.truncate(file.tell() - written)
                raise OSError(f"no room for a note in {self._path}")
            os.fsync(file.fileno())
