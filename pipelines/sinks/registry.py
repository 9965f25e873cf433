"""Sinks by the scheme of their URL."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.sinks.base import Sink
from pipelines.sinks.duckdb import DuckDbSink
from pipelines.sinks.kafka import DocumentsSink
from pipelines.sinks.sql import SqlSink
from sotto.errors import ParameterError

#: By scheme, without what follows ``+``. A new sink is a module of this folder and a line here.
SINKS: Mapping[str, type[Sink]] = {
    "sqlite": SqlSink,
    "postgresql": SqlSink,
    "duckdb": DuckDbSink,
    "kafka": DocumentsSink,
}


def open_sink(url: str, job: str = "") -> Sink:
    """Return the sink of a URL; see :meth:`pipelines.sinks.base.Sink.open`.

    Raises ParameterError if there is none of its scheme.
    """
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme not in SINKS:
        raise ParameterError(
            f"there is no sink for {scheme or 'an empty URL'}: a URL begins with one of "
            f"{', '.join(f'{name}:' for name in SINKS)}"
        )
    return SINKS[scheme].open(url, job)
