"""Results for people and programs: read from a database, served over HTTP, exported to files.

:class:`pipelines.results.reader.ResultsReader` reads the database of a state directory or of a
sink, and never writes to it. Pages, alerts, files and the HTTP interface all read through it.
:mod:`pipelines.results.records` declares every field.
"""
