"""How long pages of ``sotto serve`` take: of the server, and in a browser until all is drawn.

On the results that ``make demo`` leaves in ``build/demo``. A page is asked for by a server that has
just been started, which has to make it, and again. CPU time is the server's own. A Chromium, where
there is one, loads each page of another such server once and then again.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.harness import Table

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


@contextmanager
def _served() -> Iterator[tuple[str, Callable[[], float]]]:
    """Serve the demo's results; yield the address, and what says the CPU seconds taken."""
    command = [sys.executable, "-m", "sotto.cli", "serve", "--port", "0"]
    command += ["--state", str(DEMO / "state"), "--database", f"sqlite:///{DEMO / 'results.db'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        schedule = Path(f"/proc/{process.pid}/task")

        def cpu() -> float:
            # Nanoseconds that each of its threads has run.
            times = [(each / "schedstat").read_text() for each in schedule.iterdir()]
            return sum(int(each.split()[0]) for each in times) / 1e9

        try:
            yield process.stdout.readline().strip().rstrip("/"), cpu
        finally:
            process.terminate()


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
    with _served() as (address, _), sync_playwright() as playwright:
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
    if not (DEMO / "results.db").exists():
        print(f"there are no results in {DEMO}: run make demo before")
        return
    drawn = _in_browser()
    heads = ("page<", "bytes", "first, ms", "its CPU, ms", "again, ms", "browser, ms", "again")
    table = Table(*heads)
    with _served() as (address, cpu):
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
