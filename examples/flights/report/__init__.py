"""Writes the report: one HTML file with its style and charts inside, that fetches nothing."""

from __future__ import annotations

from pathlib import Path

import jinja2

from .. import formats
from ..findings import Fate, Findings
from . import charts

_FOLDER = Path(__file__).parent
STYLE = _FOLDER / "style.css"


def write_report(findings: Findings, path: Path) -> None:
    """Write the report about ``findings`` to ``path``."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    text = template.render(found=findings, charts=charts, f=formats, Fate=Fate)
    path.write_text(text, "utf-8")
