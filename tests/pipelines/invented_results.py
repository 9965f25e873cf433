"""A small database of invented results, with names that look like HTML, and requests for pages."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from asgi_client import Answer, answer_of, exchange
from made_documents import estimate_row, project, projection, window_row
from plan_texts import plan_head

from pipelines.results.api import create_router
from pipelines.results.reader import ResultsReader
from pipelines.sinks.sql import Projection
from pipelines.web.access import Access
from pipelines.web.application import Site, application
from sotto.plan.compile import parse_plan

DAY = 86_400_000
#: The start of the first window, ms: 2 January 2025.
START = 20_090 * DAY
NASTY = '<b>&amp "$x$"'
HEAD = plan_head(
    "look",
    (20, 900),
    collector="app.example",
    expires="2099-12-31",
    description="How the <i>app</i> is used.",
    segments="{os: [linux, mac]}",
)
METRICS = """\
  theme: {type: category, domain: [light, dark], outside: other, window: 7d,
    description: Which theme,
    ladder: &ladder [{epsilon: 0.5}, {epsilon: 1, after: 1d}, {epsilon: 2, after: 7d}]}
  speed: {type: number, range: [0, 60], unit: s, outside: clip, missing: true, mechanism: threshold,
    window: 7d, ladder: *ladder}
  page: {type: string, bits: 128, hashes: 2, cohorts: 16, window: 7d, ladder: *ladder}
  visits: {type: ordinal, edges: [0, 1, 2, 5], mechanism: brr, window: 7d, ladder: *ladder}
"""
PLAN = parse_plan(HEAD + METRICS).compile()
KEY = {"collector": "app.example", "plan": "look", "version": 1}


def window(metric: str, at: int, reports: int, revision: int, **more: object) -> dict[str, object]:
    kind = {each.name: (each.type, each.mechanism.name) for each in PLAN.metrics}[metric]
    start = START + 7 * at * DAY
    levels = [0, reports // 3, reports - reports // 3]
    own = {**KEY, "type": kind[0], "mechanism": kind[1], "revision": revision}
    own |= {"reports_by_level": levels, **more}
    return window_row(metric, start, 7 * DAY, reports, **own)


def estimate(
    of: Mapping[str, object],
    position: int,
    kind: str,
    item: str,
    value: float | None,
    **more: object,
) -> dict[str, object]:
    error = {} if value is None else {"standard_error": 0.02}
    ends = {} if value is None else {"low": value - 0.04, "high": value + 0.04}
    known = {"value": value, **error, **ends, **more}
    return estimate_row(of, position, kind, item, **known)


def _themes(at: int, revision: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    of = window("theme", at, 900, revision)
    known = {"detection_floor": 0.03, "reach": [[2.0, 1.0]] * 3}
    shares = {"light": 0.6, NASTY: 0.3, "other": -0.01 + at / 100}
    return of, [
        estimate(of, place, "share", item, share, display=max(share, 0.0), **known)
        for place, (item, share) in enumerate(shares.items())
    ]


def _segments(revision: int) -> Iterator[tuple[dict[str, object], list[dict[str, object]]]]:
    """Yield those of the themes' last window: two segments, of which one is withheld."""
    for segment, reports, share in (("os=linux", 893, 0.7), ("os=<b>", 7, None)):
        withheld = "7 reports, the plan asks for 20" if share is None else None
        of = window("theme", 2, reports, revision, segment=segment, withheld=withheld)
        items = {"light": share, NASTY: share and 1 - share, "other": share and 0.0}
        yield (
            of,
            [
                estimate(of, place, "share", item, value, withheld=withheld)
                for place, (item, value) in enumerate(items.items())
            ],
        )


def _speeds(revision: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    of = window("speed", 0, 450, revision)
    rows = [estimate(of, 0, "mean", "", 12.5, unit="s"), estimate(of, 1, "missing", "", 0.1)]
    rows += [estimate(of, 2 + n, "quantile", str(n / 4), 10.0 * n, unit="s", method="monotone")
             for n in (1, 2, 3)]  # fmt: skip
    rows += [estimate(of, 9 + n, "cdf", str(5.0 * n), n / 12) for n in range(13)]
    return of, rows


def _pages(revision: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    of = window("page", 0, 5000, revision)
    found = {"significant": True, "p_value": 1e-9, "detection_floor": 0.02}
    noise = {"significant": False, "p_value": 1.0, "detection_floor": 0.02}
    return of, [
        estimate(of, 0, "unexplained", "", 0.2),
        estimate(of, 3, "false_names", "", 0.42, unit="names"),
        estimate(of, 1, "string", f"/{NASTY}", 0.5, confounded_with=["/other"], **found),
        estimate(of, 2, "string", "/rare", 0.001, **noise),
    ]


def _visits(at: int, revision: int) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return those of bins of which reports do not tell two apart."""
    of = window("visits", at, 600, revision)
    groups = {"0": 0.2, "1": 0.3, "2 to 4 to 5 or more": 0.5}
    likely = {"0": 0.19, "1": 0.31, "2 to 4": 0.4, "5 or more": 0.1}
    rows = [estimate(of, 9 + n, "share", *each) for n, each in enumerate(likely.items())]
    rows += [estimate(of, n, "group", *each) for n, each in enumerate(groups.items())]
    rows += [estimate(of, 3, "mean", "at least", 2.3, unit="rank")]
    rows += [estimate(of, 4, "mean", "at most", 2.7, unit="rank")]
    cumulative = {"0": 0.2, "1": 0.5, "2 to 4": 0.9}
    return of, rows + [
        estimate(of, 5 + n, "cdf", *each) for n, each in enumerate(cumulative.items())
    ]


def invented(generation: int = 1, windows: int = 3) -> Projection:
    """Return the results as of a generation, with so many windows of themes."""
    few = window("speed", 1, 7, generation, withheld="7 reports, the plan asks for 20")
    changed = [_themes(at, generation) for at in range(windows)]
    changed += [_visits(at, generation) for at in range(2)]
    changed += [_speeds(generation), _pages(generation), *_segments(generation)]
    changed += [(few, [estimate(few, 0, "mean", "", None, withheld=few["withheld"])])]
    period = {"collector": "app.example", "period_start": START, "period_end": START + 7 * DAY}
    numbers = {"pseudonyms": 700, "chains": 900, "over_budget": 3, "equivocation": 1}
    amounts = {"accepted": 1_400_000_000, "observed": 1_500_000_000}
    most = {"most_accepted": 2_000_000, "most_observed": 31_000_000}
    whole = [of for of, _ in changed], [row for _, rows in changed for row in rows]
    rejects = [("late", 4000, 0), ("late", 321, 1), ("malformed", 1, 0)]
    return projection(
        collector="app.example",
        state="mine",
        generation=generation,
        clock=START + 8 * DAY,
        changed=[whole],
        periods=[{**period, "closed": True, **numbers, **amounts, **most}],
        quarantine=[
            dict(zip(("reason", "rows", "requeued"), reject, strict=True)) for reject in rejects
        ],
        lineage=f"digest {generation}",
    )


def write_results(folder: Path, generation: int = 1, windows: int = 3) -> str:
    """Write results to a database in a folder, over those that it has, and return its URL."""
    url = f"sqlite:///{folder / 'results.db'}"
    project(url, invented(generation, windows))
    return url


def changed_results(folder: Path, *statements: str) -> str:
    """Write results as :func:`write_results` does, change them in SQL, and return their URL."""
    url = write_results(folder)
    with closing(sqlite3.connect(folder / "results.db")) as connection, connection:
        connection.executescript(";".join(statements))
    return url


def app_of(url: str, access: Access | None = None) -> Any:
    """Return the application over a database."""
    access = access or Access()
    reader = ResultsReader(url, plans=[PLAN])
    return application(Site(reader, access), [create_router(reader, public=access.public)])


def ask(
    app: Any,
    path: str,
    method: str = "GET",
    body: bytes = b"",
    host: str = "localhost:8480",
    **headers: str,
) -> Answer:
    """Make one request of an ASGI application; a header's name has underscores."""
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    sent: list[Any] = []
    # An error is answered, and then raised for the server to log.
    with suppress(ValueError):
        asyncio.run(exchange(app, method, path, body, headers=given.items(), sent=sent))
    return answer_of(sent)
