"""Apache Flink, asked over REST about its jobs, and the names by which ours are found there."""

#: How a pipeline is called: this, and the name that its documents carry.
JOB_PREFIX = "sotto-"
#: The gauge by which readers report the memory of the process that they run in.
WORKER_BYTES = "worker_bytes"
#: Said of a job that runs, where the engine itself is not asked.
MAY_WAIT = "; the engine's page shows whether tasks wait for free slots"
