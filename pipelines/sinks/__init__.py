"""Sinks of results: SQL databases and Kafka topics.

- An aggregation run brings the database of ``--database`` to what it has committed
  (:meth:`pipelines.sinks.sql.Results.project`), and then calls a
  :data:`pipelines.sinks.kafka.Publish`, which the options ``--publish`` choose.
- A streaming job writes documents and rejects to a :class:`pipelines.sinks.base.Sink`.
- ``sotto sink`` takes the documents of a topic to a database (:mod:`pipelines.sinks.transfer`).

What changed since a generation is :func:`pipelines.sinks.committed.projection` as rows, and
:func:`pipelines.sinks.committed.documents_of` as documents; a ``Note`` there keeps how far a sink
has come. A run changes its database in one transaction. All else is written at least once: of what
has one key, the highest revision counts.
"""
