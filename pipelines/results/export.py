"""Writes the views of results to files, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipelines.results.encode import WRITERS
from pipelines.results.reader import ResultsReader, Row
from pipelines.results.views import View


def export(reader: ResultsReader, files: Mapping[Path, View], format: str) -> dict[Path, int]:
    """Write each view to its file, as of one moment, and return how many rows each file has.

    Files that are there are replaced once all are written. ``format``: ``parquet``, ``csv``,
    ``arrow`` or ``json``.

    Raises ResultsError if the results cannot be read, OSError if a file cannot be written.
    """
    paths = {view.name: path for path, view in files.items()}

    def write(view: View, batches: Iterator[Sequence[Row]]) -> int:
        counted = 0

        def rows() -> Iterator[Sequence[Row]]:
            nonlocal counted
            for batch in batches:
                counted += len(batch)
                yield batch

        with _beside(paths[view.name]).open("wb") as file:
            WRITERS[format](view, rows(), file)
        return counted

    try:
        counts = reader.read_all(list(files.values()), write)
        for path in files:
            os.replace(_beside(path), path)
    finally:
        for path in files:
            _beside(path).unlink(missing_ok=True)
    return dict(zip(files, counts, strict=True))


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")
