"""The job's health for Prometheus, read from what the job has left, without touching the job.

Each source may be missing, damaged or in the middle of a commit without the others or the exporter
failing. Samples of the metrics of :mod:`pipelines.exporter.catalogue` are made when Prometheus
scrapes, within a deadline (:mod:`pipelines.exporter.health`).

Privacy: labels are names of plans, metrics, reasons and periods, what the plan itself lists (its
domain, candidates, grid), and partitions of topics; never a pseudonym, a chain or a key. The most
that any single pseudonym has spent in a period is exposed, and nothing else of single ones.
"""
