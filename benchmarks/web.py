"""How long pages of ``sotto serve`` take: of the server, and in a browser until all is drawn.

On the results that ``make demo`` leaves in ``build/demo``. A page is asked for by a server that has
just been started, which has to make it, and again. CPU time is the server's own. A Chromium, where
there is one, loads each page of another such server once and then again.

Then, on made-up results of so many metrics and windows, what each new revision costs: of a metric
three shares a window. A scrape is one of ``sotto exporter``.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sql

from benchmarks.harness import Table
from pipelines.sinks.sql import Results
from pipelines.sinks.tables import ESTIMATES, META, WINDOWS

DEMO = Path("build/demo")
#: How often a page is asked for again.
AGAIN = 20
_METRICS = ("carrier", "dep_delay", "dest", "delayed", "distance")
PAGES = (
    "/",
    "/health",
    "/plans/fleet.example/departures/1",
    *(f"/metrics/fleet.example/departures/1/{name}" for name in _METRICS),
)
#: Metrics and windows of results by whose size pages and scrapes are measured, and how often.
SIZES, REVISIONS = ((50, 52), (200, 52), (500, 1000)), 5
_WEEK = 7 * 86_400_000
_COLLECTOR = "benchmark.example"
_ASKED = {
    "overview": "/",
    "a metric": f"/metrics/{_COLLECTOR}/p/1/metric7",
    "newest estimates": "/api/v1/latest_estimates",
    "metrics": "/api/v1/metrics",
}


@contextmanager
def _served(name: str, *arguments: str) -> Iterator[tuple[str, Callable[[], float]]]:
    """Run a server of ``sotto``; yield its address, and what says the CPU seconds taken."""
    command = [sys.executable, "-m", "sotto", name, "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # The clock of another process, of all its threads, those that ended too; as glibc names it.
        clock = ~process.pid << 3 | 2

        def cpu() -> float:
            return time.clock_gettime(clock)

        try:
            yield process.stdout.readline().strip().rstrip("/"), cpu
        finally:
            process.terminate()


def _served_demo() -> AbstractContextManager[tuple[str, Callable[[], float]]]:
    database = f"sqlite:///{DEMO / 'results.db'}"
    return _served("serve", "--state", str(DEMO / "state"), "--database", database)


def fill(url: str, metrics: int, windows: int) -> None:
    """Write results of so many metrics, in each window three shares."""
    key = {"collector": _COLLECTOR, "plan": "p", "version": 1, "metric": "metric0", "segment": ""}
    counted = {"n": 5000, "reports_by_level": [1000, 1000, 3000], "revision": 1}
    about = {"type": "category", "mechanism": "grr", "minimum_reports": 20}
    share = {"kind": "share", "unit": "share", "method": "unbiased", "value": 0.1, "display": 0.1}
    share |= {"low": 0.08, "high": 0.12, "standard_error": 0.01, "detection_floor": 0.03}
    starts = [{"window_start": at * _WEEK, "window_end": (at + 1) * _WEEK} for at in range(windows)]
    one = [{**key, **counted, **each} for each in starts]
    shares = [{**each, **share, "item": f"v{n}", "position": n} for each in one for n in range(3)]
    with Results(url) as results:
        results.projected(_COLLECTOR, "state")
        with results.engine.begin() as connection:
            meta = {"collector": _COLLECTOR, "state": "state", "projected_generation": 1}
            connection.execute(sql.insert(META), {**meta, "clock": windows * _WEEK})
            connection.execute(sql.insert(WINDOWS), [{**each, **about} for each in one])
            connection.execute(sql.insert(ESTIMATES), shares)
            there = 1
            while there < metrics:
                for table in (WINDOWS, ESTIMATES):
                    _copy(connection, table, there, min(there, metrics - there))
                there *= 2


def _copy(connection: sql.Connection, table: sql.Table, there: int, more: int) -> None:
    """Write ``more`` metrics beside those that are there, with the same rows."""
    number = sql.cast(sql.func.substr(table.c.metric, len("metric") + 1), sql.Integer)
    name = "metric" + sql.cast(number + there, sql.String)
    columns = [name if each.name == "metric" else each for each in table.columns]
    rows = sql.select(*columns).where(number < more)
    connection.execute(sql.insert(table).from_select(table.columns.keys(), rows))


def _of_each_revision(
    url: str, address: str, paths: Sequence[str], cpu: Callable[[], float]
) -> Iterator[float]:
    """Yield the least CPU seconds that each path takes when the results have changed."""
    engine = sql.create_engine(url)
    least = dict.fromkeys(paths, float("inf"))
    for _ in range(REVISIONS):
        for path in paths:
            with engine.begin() as connection:
                connection.execute(sql.update(META).values(lineage=str(time.time_ns())))
            before = cpu()
            _fetch(f"{address}{path}")
            least[path] = min(least[path], cpu() - before)
    engine.dispose()
    yield from least.values()


def by_size() -> None:
    """Print what a new revision costs, by the number of metrics and windows."""
    table = Table("metrics", "windows", *(f"{name}, ms" for name in _ASKED), "scrape, ms")
    for metrics, windows in SIZES:
        with TemporaryDirectory() as folder:
            url = f"sqlite:///{folder}/results.db"
            fill(url, metrics, windows)
            with _served("serve", "--database", url) as (address, cpu):
                times = [*_of_each_revision(url, address, [*_ASKED.values()], cpu)]
            arguments = ("--database", url, "--max-age", "0s", "--timeout", "60s")
            with _served("exporter", *arguments) as (address, cpu):
                times += _of_each_revision(url, address, [""], cpu)
            table.row(metrics, windows, *(f"{1000 * each:.0f}" for each in times))


def _seconds(load: Callable[[], object]) -> float:
    began = time.perf_counter()
    load()
    return time.perf_counter() - began


def _fetch(url: str) -> int:
    with urllib.request.urlopen(url) as answer:
        return len(answer.read())


def _in_browser() -> dict[str, tuple[float, float]]:
    """Return the seconds until pages are drawn, first and again; nothing without a Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return {}
    from playwright.sync_api import sync_playwright

    found = {}
    with _served_demo() as (address, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto("about:blank")
        for path in PAGES:
            url = f"{address}{path}"
            found[path] = (_seconds(partial(page.goto, url)), _seconds(page.reload))
        browser.close()
    return found


def main() -> None:
    """Print how long each page takes."""
    demo()
    print()
    by_size()


def demo() -> None:
    """Print how long each page of the demo's results takes."""
    if not (DEMO / "results.db").exists():
        print(f"there are no results in {DEMO}: run make demo before")
        return
    drawn = _in_browser()
    heads = ("page<", "bytes", "first, ms", "its CPU, ms", "again, ms", "browser, ms", "again")
    table = Table(*heads)
    with _served_demo() as (address, cpu):
        for path in PAGES:
            url = f"{address}{path}"
            before = cpu()
            first = _seconds(partial(_fetch, url))
            taken = cpu() - before
            again = statistics.median(_seconds(partial(_fetch, url)) for _ in range(AGAIN))
            times = (first, taken, again, *drawn.get(path, ()))
            table.row(path, _fetch(url), *(f"{1000 * each:.1f}" for each in times))


if __name__ == "__main__":
    main()
