"""The contents of a state directory and of its database, to be compared."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sql

from pipelines.aggregation import counts, quarantine
from pipelines.aggregation.audit import Totals
from pipelines.aggregation.counts import WindowKey
from pipelines.results.tables import ESTIMATES, META, PERIODS, QUARANTINE, WINDOWS
from pipelines.sinks.sql import Results, of_state
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from sotto.wire.decode import Reject

TABLES = (META, WINDOWS, ESTIMATES, PERIODS, QUARANTINE)


def empty_state(state: Path, elsewhere: str | None = None) -> Path:
    """Make a state directory into which nothing was aggregated; copies of it have one key."""
    directory = StateDirectory(state)
    with directory.lock():
        directory.open(elsewhere)
    return state


def committed(state: Path) -> dict[str, bytes]:
    """Return every file but the locks, the database and the last run's note, with its content."""
    return {
        str(path.relative_to(state)): path.read_bytes()
        for path in sorted(state.rglob("*"))
        if path.is_file()
        and path.name not in ("LOCK", "BACKUP", "last_run.json")
        and not path.name.startswith("results.db")
    }


def counted(state: Path) -> dict[WindowKey, list[list[int]]]:
    directory = StateDirectory(state)
    found = {}
    for page, generation in directory.manifest().pages.items():
        body = files.load(directory.files.page(page, generation), counts.KIND)
        for key, window in counts.unpack_page(body).items():
            if window.counts.any():
                found[key] = window.counts.tolist()
    return found


def rejects(state: Path) -> list[Reject]:
    directory = StateDirectory(state)
    return [
        reject
        for entry in directory.manifest().quarantine
        for reject in quarantine.unpack(
            files.load(directory.files.quarantine(entry), quarantine.KIND)
        )
    ]


def projected(
    url: str | sql.URL | Path, *, without: tuple[str, ...] = ()
) -> dict[str, list[dict[str, object]]]:
    """Return the content of a database, or of a state directory's own, without some columns."""
    with Results(of_state(url) if isinstance(url, Path) else url) as results:
        tables = {table.name.removeprefix("stored_"): results.table(table) for table in TABLES}
    return {
        name: [{k: v for k, v in row.items() if k not in without} for row in rows]
        for name, rows in tables.items()
    }


def period_totals(state: Path) -> dict[int, Totals]:
    """Return the audit of every budget period, open or closed, by the period's start in ms."""
    directory = StateDirectory(state)
    manifest = directory.manifest()
    length = directory.plans.registry(manifest.plans).period if manifest.plans else 0
    return {period * length: totals for period, totals in sorted(manifest.audit().items())}
