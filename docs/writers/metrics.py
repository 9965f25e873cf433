"""``docs/reference/metrics.md``: every metric of ``sotto exporter``, from its catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.exporter.catalogue import CATALOGUE

_HEAD = """\
# Prometheus metrics

Written by `make docs` from `pipelines/exporter/catalogue.py`: the metrics of `sotto exporter`.
Each has the label `collector` besides. A metric whose value is unknown has no sample. [Watching a
job](../operate/operations.md#watching-the-job) says how to scrape them.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(_rows())


def _rows() -> Iterator[str]:
    for each in CATALOGUE.values():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.type} | {labels} | {each.help} |\n"


if __name__ == "__main__":
    print(page(), end="")
