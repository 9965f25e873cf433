"""The job's health for Prometheus, read from what the job has left, without touching the job.

Sources, each of which may be missing, damaged or in the middle of a commit without the others or
the exporter failing: what is committed (:mod:`pipelines.exporter.committed`), the database of
results (:mod:`pipelines.exporter.database`) and the log or topics (:mod:`pipelines.exporter.lag`);
of a streaming job the topic that it publishes to (:mod:`pipelines.exporter.documents`). They are
frozen values;
:mod:`pipelines.exporter.families` makes samples of the metrics of
:mod:`pipelines.exporter.catalogue` from them, and :mod:`pipelines.exporter.health` does all that
when it is asked, within a deadline.

Privacy
-------
Labels are names of plans, metrics, reasons and periods, and what the plan itself lists: values of
its domain, its candidates, its grid; and partitions of topics. A pseudonym, a chain or a key never
is one. What is said of single pseudonyms is the most that any has spent in a period.
"""
