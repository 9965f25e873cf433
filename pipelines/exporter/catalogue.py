"""Every exposed metric: name, labels, meaning; ``docs/reference/metrics.md`` is made of it.

All have the label ``collector`` besides: whose job it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_METRICS = """\
sotto_source_status{source, status}
    1 for the current status of a source, else 0: ok, missing, damaged or unreadable.
sotto_exporter_read_seconds
    How long the last reading of all sources took.
sotto_exporter_read_age_seconds
    How old that reading is.
sotto_exporter_deadline_exceeded_total
    Scrapes answered with an older reading, or none, since a new one took too long.
sotto_run_generation
    Generation of the last aggregation run.
sotto_run_in_progress
    1 while a run is in progress, or was interrupted and must be finished; else 0.
sotto_run_duration_seconds
    How long the last run took, from its intent to the projection of its results.
sotto_run_finished_timestamp_seconds
    When the last run finished.
sotto_run_age_seconds
    How long ago the last run finished.
sotto_run_check_age_seconds
    How long ago the job last checked for new records, whether or not it found any.
sotto_run_failed{problem}
    1 if the last run failed, or could not publish, for this reason; else 0.
sotto_future_records_total
    Records rejected whole, since their append time was ahead of the clock of the job's machine.
sotto_clock_timestamp_seconds
    The job's clock: the append time up to which all records have been read.
sotto_database_generation
    Generation of the results in the database.
sotto_database_behind_generations
    By how many generations the database is behind what is committed.
sotto_database_bytes
    Size of the SQLite file and its journal.
sotto_lag_bytes
    Bytes of the log that the job has not read.
sotto_lag_records
    Records that the job has not read; extrapolated where a partition has many.
sotto_lag_seconds
    How long the oldest record that the job has not read has waited; 0 for none.
sotto_lag_partitions
    Partitions with records that the job has not read.
sotto_partition_offset{partition}
    Offset of the record that a streaming job reads next, by partition.
sotto_partition_lag_records{partition}
    Records of a partition that a streaming job has not read.
sotto_document_age_seconds
    How long ago the newest document of the topic of estimates was published.
sotto_sink_lag_records
    Records of the topic of estimates that the sink has not written.
sotto_engine_running
    1 while Flink runs every task of a streaming job, else 0.
sotto_engine_restarts_total
    How often Flink has restarted the job since it was submitted.
sotto_engine_checkpoint_age_seconds
    How long ago the job's last complete checkpoint began; since the job did, if there is none.
sotto_engine_checkpoint_interval_seconds
    How often a checkpoint is to begin.
sotto_engine_checkpoint_duration_seconds
    How long the last complete checkpoint took.
sotto_engine_checkpoint_bytes
    Size of the last complete checkpoint.
sotto_engine_checkpoints_total
    Checkpoints completed since the job was submitted.
sotto_engine_checkpoints_failed_total
    Checkpoints that failed or took too long; a few belong to every start.
sotto_engine_watermark_timestamp_seconds
    The time up to which the job has read all partitions.
sotto_engine_watermark_age_seconds
    How long ago that was.
sotto_engine_backpressure_ratio
    Share of the time for which the job's slowest stage held up one before it.
sotto_engine_busy_ratio
    Share of the time for which the job's busiest stage worked.
sotto_engine_heap_ratio
    Used share of the heap of the fullest task manager.
sotto_engine_worker_bytes
    Memory of the Python processes that read reports.
sotto_state_bytes{part}
    Size of the committed files, or of a streaming job's states.
sotto_state_chains
    Chains in the budget periods that are open.
sotto_state_pseudonyms
    Pseudonyms in the budget periods that are open.
sotto_reports_read_total
    Reports decoded from the log.
sotto_reports_duplicates_total
    Reports that had been seen before.
sotto_reports_rejected_total{reason}
    Reports rejected; a message that cannot be decoded counts as one.
sotto_reports_requeued_total{reason}
    Reports that were rejected, and requeued once their plan was loaded.
sotto_reports_accepted{plan, version, metric}
    Reports that count, the newest of each chain; less when a pseudonym is revoked.
sotto_reports_by_level{plan, version, metric, level}
    Reports that count, by level; 0 is the weakest.
sotto_period_allowed_epsilon
    What one pseudonym may spend in a budget period before it is revoked.
sotto_period_closed{period}
    1 once a budget period takes no more reports; else 0.
sotto_period_pseudonyms{period}
    Pseudonyms of a budget period.
sotto_period_chains{period}
    Chains of a budget period.
sotto_period_revoked_pseudonyms{period, reason}
    Revoked pseudonyms of a budget period.
sotto_period_spent_epsilon{period, audit}
    Certified loss summed over pseudonyms, of the reports accepted or of all observed.
sotto_period_allowed_sum_epsilon{period}
    What all pseudonyms of a budget period together may spend.
sotto_period_spent_max_epsilon{period, audit}
    The most that a single pseudonym has spent in a budget period.
sotto_period_spent_max_ratio{period, audit}
    That, as a share of what it may spend.
sotto_estimate{plan, version, metric, kind, item, unit, method}
    Estimates of the newest complete window of every metric; of the newest where none is complete.
sotto_estimate_standard_error{plan, version, metric, kind, item, unit, method}
    Their standard errors.
sotto_estimate_low{plan, version, metric, kind, item, unit, method}
    Lower ends of their intervals of 95 %.
sotto_estimate_high{plan, version, metric, kind, item, unit, method}
    Upper ends of their intervals of 95 %.
sotto_estimate_window_reports{plan, version, metric}
    Reports that count in that window.
sotto_estimate_window_withheld{plan, version, metric}
    1 if these are fewer than the plan asks for, so that no estimate is exposed; else 0.
sotto_estimate_window_complete{plan, version, metric}
    1 if all reports of that window were due, 0 if its estimates are so far.
sotto_newest_window_end_timestamp_seconds{plan, version, metric}
    Where the newest window with reports ends, complete or not.
sotto_estimate_window_start_timestamp_seconds{plan, version, metric}
    Where that window begins.
sotto_estimate_window_end_timestamp_seconds{plan, version, metric}
    Where that window ends.
sotto_poisoning_alarms{plan, version, metric, kind}
    Of the newest two windows of a metric, those whose reports honest devices do not send, by check.
sotto_metric_first_release_seconds{plan, version, metric}
    How long after an event its first report is due.
sotto_estimates_exposed
    Estimates of newest windows that are exposed.
sotto_estimates_omitted
    Estimates of newest windows that are not, to keep the number of series bounded.
sotto_estimate_moved{plan, metric, segment, kind, item, direction}
    By how much a figure moved: alerts sent in the last 30 days that the results still show.
sotto_estimate_moved_timestamp_seconds{plan, metric, segment, kind, item, direction}
    When that alert was raised.
sotto_alerts_evaluated_timestamp_seconds{file}
    When the results were last looked at for alerts; 0 if the file cannot be read.
sotto_alerts_undelivered{file}
    Messages about alerts that could not be delivered yet.
"""


@dataclass(frozen=True)
class Described:
    """A metric."""

    name: str  #: as it is exposed, unit and ``_total`` included
    help: str  #: one sentence
    labels: tuple[str, ...] = ()  #: names of its labels but ``collector``

    @property
    def type(self) -> str:
        """``counter`` for what only grows, ``gauge`` for all else."""
        return "counter" if self.name.endswith("_total") else "gauge"


#: By name, in the order in which they are exposed.
CATALOGUE = {
    name: Described(name, help, tuple(re.findall(r"\w+", labels)))
    for name, labels, help in re.findall(r"^(\w+)(.*)\n    (.+)$", _METRICS, re.MULTILINE)
}
