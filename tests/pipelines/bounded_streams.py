"""A streaming pipeline that ends: its command, and what it has left."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sql
from committed_states import projected
from streaming_logs import Outcome, outcome_of_tables

from pipelines.aggregation import quarantine
from pipelines.aggregation.step import Tally
from pipelines.results.tables import HEALTH
from pipelines.storage import files
from sotto.plan.compiled import CompiledPlan


def command(folder: Path, plans: list[CompiledPlan], *more: str) -> list[str]:
    (folder / "plans").mkdir(exist_ok=True)
    for plan in plans:
        (folder / "plans" / f"{plan.fingerprint_hex}.json").write_bytes(plan.to_json())
    given = ["--state", folder / "job", "--plans", folder / "plans", "--log", folder / "log"]
    given += ["--database", f"sqlite:///{folder / 'results.db'}", "--until-end", *more]
    return ["stream", *map(str, given)]


def outcome_of(folder: Path) -> Outcome:
    url = f"sqlite:///{folder / 'results.db'}"
    tables = projected(url)
    engine = sql.create_engine(url)
    with engine.connect() as database:
        (health,) = database.execute(sql.select(HEALTH.c.document)).scalars()
    engine.dispose()
    tally = Tally(*(health[name] for name in Tally._fields))
    rejected = {row["reason"]: row["rows"] for row in tables["quarantine"]}
    rejects = [
        reject
        for path in sorted((folder / "job" / "quarantine").glob("*"))
        for reject in quarantine.unpack(files.load(path, quarantine.KIND))
    ]
    key = ("plan", "metric", "window_start")
    estimated = {tuple(row[name] for name in key) for row in tables["estimates"]}
    windows = [row for row in tables["windows"] if tuple(row[name] for name in key) in estimated]
    assert all(row["closed"] for row in tables["periods"])
    return outcome_of_tables(tables | {"windows": windows}, tally, rejected, rejects)
