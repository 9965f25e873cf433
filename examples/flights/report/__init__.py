"""Writes the report: one HTML file with its style and figures inside, that fetches nothing."""

from __future__ import annotations

from pathlib import Path

from ..findings import Findings
from . import checks, estimates, page

STYLE = Path(__file__).with_name("style.css")


def write_report(findings: Findings, path: Path) -> None:
    """Write the report about ``findings`` to ``path``."""
    parts = (
        estimates.opening(findings),
        estimates.sharpening(findings),
        estimates.carriers(findings),
        estimates.over_the_year(findings),
        estimates.delays(findings),
        estimates.destinations(findings.decoding),
        checks.errors(findings),
        checks.coverage(findings),
        checks.ledgers(findings),
        checks.faults(findings),
        checks.protection(findings),
        checks.footer(findings),
    )
    text = page.document(estimates.TITLE, STYLE.read_text("utf-8"), "".join(parts))
    path.write_text(text, "utf-8")
