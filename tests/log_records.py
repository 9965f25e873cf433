"""Records of a log in a folder."""

from __future__ import annotations

from pathlib import Path

from sotto.log.reader import LogReader, LogRecord, partitions


def records_of(log: Path) -> list[LogRecord]:
    """Return the records of all partitions, one after another; none may be damaged."""
    found = [each for lane in partitions(log) for each in LogReader(lane).records()]
    records = [each for each in found if isinstance(each, LogRecord)]
    assert len(records) == len(found), "the log is damaged"
    return records
