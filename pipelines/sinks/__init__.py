"""Sinks of results: SQL databases and Kafka topics.

- An aggregation run brings the database of ``--database`` to what it has committed
  (:meth:`pipelines.sinks.sql.Results.project`), and then calls each
  :data:`pipelines.sinks.kafka.Publish` that the options ``--publish`` choose.
- A streaming job writes documents to a :class:`pipelines.sinks.base.Sink`, which
  :mod:`pipelines.sinks.registry` finds by its URL, and rejects to a ``RejectsSink``.
- ``sotto sink`` takes the documents of a topic to a sink (:mod:`pipelines.sinks.transfer`).

Everything that is written is documents: :mod:`pipelines.sinks.committed` yields those that
changed since a generation, and a ``Note`` there keeps how far a topic has come. A run changes
its database in one transaction. All else is written at least once: of what has one key, the highest
revision counts.
"""
