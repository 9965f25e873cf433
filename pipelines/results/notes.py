"""Notes on the axis of time, such as releases: a YAML file to which the HTTP interface adds."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

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
    text: Annotated[str, Field(min_length=1, max_length=120), AfterValidator(str.strip)]


class Notes:
    """The notes of a file, which is a list of YAML, read again whenever it has changed.

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
        try:
            return self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def read(self) -> list[TimeNote]:
        """Return the notes by time; ParameterError if the file is no list of notes."""
        try:
            notes = read_yaml(self._path, tuple[TimeNote, ...], [])
        except FileNotFoundError:
            return []
        return sorted(notes, key=lambda note: note.at)

    def add(self, note: TimeNote) -> None:
        """Append a note; it is on the disk when this returns."""
        line = json.dumps(note.model_dump(mode="json"), ensure_ascii=False)
        with self._lock, open(self._path, "a+", encoding="utf-8") as file:
            file.seek(0)
            before = file.read()
            file.write(("" if before.endswith("\n") or not before else "\n") + f"- {line}\n")
            file.flush()
            os.fsync(file.fileno())
