"""Every metric that is exposed: name, type, labels and meaning; documented in the same words."""

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


def _described(*entries: Described) -> dict[str, Described]:
    return {entry.name: entry for entry in entries}


#: By name, in the order in which they are exposed.
CATALOGUE = _described(
    Described(
        "sotto_source_status",
        "1 for what a source is now, 0 for what it is not: ok, missing, damaged or unreadable.",
        ("source", "status"),
    ),
    Described("sotto_exporter_read_seconds", "How long the last reading of all sources took."),
    Described("sotto_exporter_read_age_seconds", "How old that reading is."),
    Described(
        "sotto_exporter_deadline_exceeded_total",
        "Scrapes answered with an older reading, or none, since a new one took too long.",
    ),
    Described("sotto_run_generation", "Generation of the last run committed."),
    Described(
        "sotto_run_undertaken",
        "1 while a run is under way, or was interrupted and is to be finished; else 0.",
    ),
    Described(
        "sotto_run_duration_seconds",
        "How long the last run took, from its intent to the projection of its results.",
    ),
    Described("sotto_run_finished_timestamp_seconds", "When the last run was finished."),
    Described("sotto_run_age_seconds", "How long ago the last run was finished."),
    Described(
        "sotto_run_look_age_seconds",
        "How long ago the job has last looked for more, whether or not it found any.",
    ),
    Described(
        "sotto_clock_timestamp_seconds",
        "The log's clock as the job has it: the latest append time taken, up to which all is.",
    ),
    Described("sotto_database_generation", "Generation of the results in the database."),
    Described(
        "sotto_database_behind_generations",
        "By how many generations the database is behind what is committed.",
    ),
    Described("sotto_database_bytes", "Size of the SQLite file and its journal."),
    Described("sotto_lag_bytes", "Bytes of the log that the job has not taken."),
    Described(
        "sotto_lag_records",
        "Records of the log that the job has not taken; extrapolated where a lane has many.",
    ),
    Described(
        "sotto_lag_seconds", "Age of the oldest record that the job has not taken; 0 for none."
    ),
    Described("sotto_lag_lanes", "Lanes of the log with records that the job has not taken."),
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
        "sotto_sink_lag_records", "Records of the topic of estimates that no sink has taken."
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
        "Reports in quarantine, or once there; what is not decodable counts as one.",
        ("reason",),
    ),
    Described(
        "sotto_reports_requeued_total",
        "Reports that were rejected, and taken again once their plan was loaded.",
        ("reason",),
    ),
    Described(
        "sotto_reports_accepted",
        "Reports that count, the newest of each chain; less when a pseudonym is revoked.",
        _METRIC,
    ),
    Described(
        "sotto_reports_by_rung",
        "Reports that count, by the rung that they are of; 0 is the weakest.",
        (*_METRIC, "rung"),
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
        "Certified loss summed over pseudonyms: accepted is counted, observed is all that came.",
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
