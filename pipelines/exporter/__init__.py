"""The health of jobs for Prometheus (``sotto exporter``), read from their files, databases and
topics, without touching a job.

A source may be missing, damaged or in the middle of a commit: the exporter and the other sources
go on. Samples of the metrics of :mod:`pipelines.exporter.catalogue` are made when Prometheus
scrapes, within a deadline (:mod:`pipelines.exporter.health`).

Privacy: labels are names of plans, metrics, reasons and periods, what the plan itself lists (its
domain, candidates, grid), and partitions of topics; never a pseudonym, a chain or a key. The most
that any single pseudonym has spent in a period is exposed, and nothing else of single ones.
"""
