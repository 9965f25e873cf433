"""The job's health for Prometheus, read from what the job has left, without touching the job.

Each source may be missing, damaged or in the middle of a commit without the others or the exporter
failing: what is committed (:mod:`pipelines.exporter.committed`), the database of results
(:mod:`pipelines.exporter.database`), the log or topics, and the topic of estimates
(:mod:`pipelines.exporter.lag`). Samples of the metrics of :mod:`pipelines.exporter.catalogue` are
made from their readings (:mod:`pipelines.exporter.families`) when Prometheus scrapes, within a
deadline (:mod:`pipelines.exporter.health`).

Privacy
-------
Labels are names of plans, metrics, reasons and periods, and what the plan itself lists: values of
its domain, its candidates, its grid; and partitions of topics. A pseudonym, a chain or a key never
is one. Of single pseudonyms only the most that any has spent in a period is exposed.
"""
