"""The queries of docs/guides/results.md, in SQLite and by DuckDB from files; the notebook.

Datasette and notebooks take a second to import, which each process that collects tests would pay.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from documented_queries import DEVICES, comparable, grafana_queries, queries

from examples.notebooks.small_job import play
from sotto_cli import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "examples" / "notebooks" / "results.ipynb"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("results"), DEVICES)


def test_documented_queries_give_the_same_rows_in_sqlite_and_duckdb(
    state: Path, tmp_path: Path
) -> None:
    assert main(["export", "--state", str(state), "--out", str(tmp_path)]) == 0
    duck = duckdb.connect()
    for file in tmp_path.iterdir():
        # As if there were another version and another plan, whose medians may not be mixed in.
        others = ("0 AS version", "'x' AS plan") if file.stem == "quantiles" else ()
        more = [f"UNION ALL (FROM '{file}' SELECT * REPLACE ({each}))" for each in others]
        duck.execute(f"CREATE VIEW {file.stem} AS FROM '{file}' {' '.join(more)}")
    lengths = []
    with closing(sqlite3.connect(f"file:{state / 'results.db'}?mode=ro", uri=True)) as lite:
        for query in [*queries(), *grafana_queries()]:
            rows = comparable(lite.execute(query))
            assert comparable(duck.execute(query).fetchall()) == rows, query
            lengths.append(len(rows))
    # Nothing is withheld.
    assert lengths == [4, 3, 0, *(1, 1, 1, 2, 4, 4, 3, 3, 3, 3, 0)]


def test_datasette_answers_documented_queries(state: Path) -> None:
    from datasette.app import Datasette

    asked = [*queries(), *grafana_queries()]

    async def answers() -> list[list[list[object]]]:
        client = Datasette([str(state / "results.db")]).client
        found = [
            await client.get("/results.json", params={"sql": query, "_shape": "arrays"})
            for query in asked
        ]
        return [each.raise_for_status().json()["rows"] for each in found]

    with closing(sqlite3.connect(f"file:{state / 'results.db'}?mode=ro", uri=True)) as lite:
        for query, rows in zip(asked, asyncio.run(answers()), strict=True):
            assert comparable(rows) == comparable(lite.execute(query)), query


@pytest.mark.real_randomness
def test_the_notebook_goes_from_a_job_of_its_own_to_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "strip its outputs"
    monkeypatch.setenv("SOTTO_STATE", str(tmp_path / "job" / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    options = {"timeout": 900, "startup_timeout": 900}
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}, **options).execute()
    shown = [set(output.data) for cell in cells for output in cell.outputs if "data" in output]
    assert sum("image/png" in kinds for kinds in shown) == 2
    assert sum("text/html" in kinds for kinds in shown) == 4
