"""The queries of docs/guides/results.md and of Grafana's panels; their rows, comparable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "results.md"
DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards" / "results.json"
#: Devices of the small job on which they are run.
DEVICES = 150


def queries() -> list[str]:
    """Return the blocks of SQL, in order."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def grafana_queries() -> list[str]:
    """Return the queries of variables and panels, with the job's metrics and all of its time."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    texts = [each["query"] for each in board["templating"]["list"]]
    texts += [target["rawSql"] for panel in board["panels"] for target in panel["targets"]]
    found = []
    for template in texts:
        text = template
        metric = "startup" if "mean" in text or "quantile" in text else "theme"
        job = {"collector": "editor.example", "plan": "comfort", "version": "1"}
        chosen = {**job, "metric": metric, "segment": "", "item": "dark"}
        for name, value in chosen.items():
            text = text.replace(f"${{{name}:sqlstring}}", f"'{value}'")
        time = r"\1 BETWEEN '2000-01-01T00:00:00Z' AND '2100-01-01T00:00:00Z'"
        query = re.sub(r"\$__timeFilter\((\w+)\)", time, text)
        assert "$" not in query
        found.append(query)
    return found


def comparable(rows: Iterable[Sequence[object]]) -> list[tuple[object, ...]]:
    """Return rows in which times and numbers of all engines are equal."""
    return [tuple(_value(value) for value in row) for row in rows]


def _value(value: object) -> object:
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
        return int(datetime.fromisoformat(value).timestamp() * 1000)
    return round(value, 9) if isinstance(value, float) else value
