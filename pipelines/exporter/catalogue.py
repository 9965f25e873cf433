"""Every metric that is exposed: name, labels and meaning; ``docs/operations.md`` repeats it."""

from __future__ import annotations

from dataclasses import dataclass

_METRIC = ("plan", "version", "metric")
_ESTIMATE = (*_METRIC, "kind", "item", "unit", "method")


@dataclass(frozen=True)
class Described:
    """A metric.

    Parameters
    ----------
    name : str
        As it is exposed, unit and ``_total`` included.
    help : str
        One sentence.
    labels : tuple of str
        Names of its labels.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """``counter`` for what only grows, ``gauge`` for all else."""
        return "counter" if self.name.endswith("_total") else "gauge"


_ALL = (
    Described(
        "sotto_source_status",
        "1 for the current status of a source, else 0: ok, missing, damaged or unreadable.",
        ("source", "status"),
    ),
    Described("sotto_exporter_read_seconds", "How long the last reading of all sources took."),
    Described("sotto_exporter_read_age_seconds", "How old that reading is."),
    Described(
        "sotto_exporter_deadline_exceeded_total",
        "Scrapes answered with an older reading, or none, since a new one took too long.",
    ),
    Described("sotto_run_generation", "Generation of the last aggregation run."),
    Described(
        "sotto_run_in_progress",
        "1 while a run is in progress, or was interrupted and must be finished; else 0.",
    ),
    Described(
        "sotto_run_duration_seconds",
        "How long the last run took, from its intent to the projection of its results.",
    ),
    Described("sotto_run_finished_timestamp_seconds", "When the last run finished."),
    Described("sotto_run_age_seconds", "How long ago the last run finished."),
    Described(
        "sotto_run_check_age_seconds",
        "How long ago the job last checked for new records, whether or not it found any.",
    ),
    Described(
        "sotto_clock_timestamp_seconds",
        "The job's clock: the append time up to which all records have been read.",
    ),
    Described("sotto_database_generation", "Generation of the results in the database."),
    Described(
        "sotto_database_behind_generations",
        "By how many generations the database is behind what is committed.",
    ),
    Described("sotto_database_bytes", "Size of the SQLite file and its journal."),
    Described("sotto_lag_bytes", "Bytes of the log that the job has not read."),
    Described(
        "sotto_lag_records",
        "Records that the job has not read; extrapolated where a partition has many.",
    ),
    Described(
        "sotto_lag_seconds", "Age of the oldest record that the job has not read; 0 for none."
    ),
    Described("sotto_lag_partitions", "Partitions with records that the job has not read."),
    Described(
        "sotto_partition_offset",
        "Offset of the record that a streaming job reads next, by partition.",
        ("partition",),
    ),
    Described(
        "sotto_partition_lag_records",
        "Records of a partition that a streaming job has not read.",
        ("partition",),
    ),
    Described(
        "sotto_document_age_seconds",
        "How long ago the newest document of the topic of estimates was published.",
    ),
    Described(
        "sotto_sink_lag_records", "Records of the topic of estimates that the sink has not written."
    ),
    Described(
        "sotto_state_bytes",
        "Size of the committed files, or of a streaming job's states.",
        ("part",),
    ),
    Described("sotto_state_chains", "Chains in the budget periods that are open."),
    Described("sotto_state_pseudonyms", "Pseudonyms in the budget periods that are open."),
    Described("sotto_reports_read_total", "Reports decoded from the log."),
    Described("sotto_reports_duplicates_total", "Reports that had been seen before."),
    Described(
        "sotto_reports_rejected_total",
        "Reports rejected; a message that cannot be decoded counts as one.",
        ("reason",),
    ),
    Described(
        "sotto_reports_requeued_total",
        "Reports that were rejected, and requeued once their plan was loaded.",
        ("reason",),
    ),
    Described(
        "sotto_reports_accepted",
        "Reports that count, the newest of each chain; less when a pseudonym is revoked.",
        _METRIC,
    ),
    Described(
        "sotto_reports_by_level",
        "Reports that count, by level; 0 is the weakest.",
        (*_METRIC, "level"),
    ),
    Described(
        "sotto_period_allowed_epsilon",
        "What one pseudonym may spend in a budget period before it is revoked.",
    ),
    Described(
        "sotto_period_closed", "1 once a budget period takes no more reports; else 0.", ("period",)
    ),
    Described("sotto_period_pseudonyms", "Pseudonyms of a budget period.", ("period",)),
    Described("sotto_period_chains", "Chains of a budget period.", ("period",)),
    Described(
        "sotto_period_revoked_pseudonyms",
        "Revoked pseudonyms of a budget period.",
        ("period", "reason"),
    ),
    Described(
        "sotto_period_spent_epsilon",
        "Certified loss summed over pseudonyms, of the reports accepted or of all observed.",
        ("period", "audit"),
    ),
    Described(
        "sotto_period_allowed_sum_epsilon",
        "What all pseudonyms of a budget period together may spend.",
        ("period",),
    ),
    Described(
        "sotto_period_spent_max_epsilon",
        "The most that a single pseudonym has spent in a budget period.",
        ("period", "audit"),
    ),
    Described(
        "sotto_period_spent_max_ratio",
        "That, as a share of what it may spend.",
        ("period", "audit"),
    ),
    Described(
        "sotto_estimate",
        "Estimates of the newest window of every metric.",
        _ESTIMATE,
    ),
    Described("sotto_estimate_standard_error", "Their standard errors.", _ESTIMATE),
    Described("sotto_estimate_low", "Lower ends of their intervals of 95 %.", _ESTIMATE),
    Described("sotto_estimate_high", "Upper ends of their intervals of 95 %.", _ESTIMATE),
    Described("sotto_estimate_window_reports", "Reports that count in that window.", _METRIC),
    Described(
        "sotto_estimate_window_withheld",
        "1 if these are fewer than the plan asks for, so that no estimate is exposed; else 0.",
        _METRIC,
    ),
    Described(
        "sotto_estimate_window_start_timestamp_seconds", "Where that window begins.", _METRIC
    ),
    Described("sotto_estimate_window_end_timestamp_seconds", "Where that window ends.", _METRIC),
    Described(
        "sotto_metric_first_release_seconds",
        "How long after an event its first report is due.",
        _METRIC,
    ),
    Described("sotto_estimates_exposed", "Estimates of newest windows that are exposed."),
    Described(
        "sotto_estimates_omitted",
        "Estimates of newest windows that are not, to keep the number of series bounded.",
    ),
)

#: By name, in the order in which they are exposed.
CATALOGUE = {each.name: each for each in _ALL}
