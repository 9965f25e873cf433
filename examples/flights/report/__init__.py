"""Writes the report: one HTML file with its style and charts inside, that fetches nothing."""

from __future__ import annotations

from pathlib import Path

import jinja2
from markupsafe import Markup

from pipelines.web.formats import percent
from pipelines.web.rendering import STATIC
from sotto.columns import exact

from ..findings import Findings, date
from . import charts

_FOLDER = Path(__file__).parent
#: The style sheet of all pages, and the one that this page has besides.
STYLES = (STATIC / "style.css", _FOLDER / "style.css")


def write_report(findings: Findings, path: Path, results: str) -> None:
    """Write the report about ``findings`` to ``path``.

    ``results``: address of the page of ``sotto report``, which shows what an analyst has.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    style = "".join(each.read_text("utf-8") for each in STYLES)
    text = template.render(
        found=findings,
        charts=charts,
        style=Markup(style),
        results=results,
        date=date,
        exact=exact,
        percent=percent,
    )
    path.write_text(text, "utf-8")
