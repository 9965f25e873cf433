"""Asks Apache Flink over REST about jobs, and has the names by which Sotto's jobs are found."""

#: The name of a pipeline at Flink is this and the name that its documents carry.
JOB_PREFIX = "sotto-"
#: The name of the gauge by which the reading stage reports its process's memory.
WORKER_BYTES = "worker_bytes"
#: Said of a job that runs, where the engine itself is not asked.
MAY_WAIT = "; the engine's page shows whether tasks wait for free slots"
