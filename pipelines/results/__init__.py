"""Results for people and programs: read from a database, served over HTTP, exported to files.

:class:`pipelines.results.reader.ResultsReader` reads a database of results, of a state directory
or of a sink, and never writes to it. All that shows results is made of what it returns.
"""
