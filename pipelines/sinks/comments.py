"""What the tables of results and their columns are, in words.

PostgreSQL has these as comments, and ``docs/tables.md`` is made of them.
"""

from __future__ import annotations

from pipelines.sinks import tables

#: Columns that several tables have.
_COMMON = {
    "collector": "who collects",
    "plan": "name of the plan",
    "version": "version of the plan",
    "metric": "name of the metric",
    "window_start": "when the window begins, ms since the epoch",
    "window_end": "when it ends, ms since the epoch; the end is not part of it",
    "segment": "which reports: empty for all, else such as os=linux,app_version=2",
    "n": "reports that it is made of",
    "reports_by_level": "of these, by level, the first one first",
    "revision": "generation or document that changed it last",
    "withheld": "why there is no estimate; null where there is one",
    "complete": "whether all levels of the window were due and their grace over; null in rows of "
    "earlier releases, which are complete",
}
#: By table: what a row is, and the columns that are its own.
_COMMENTS: dict[str, tuple[str, dict[str, str]]] = {
    "meta": (
        "by collector: whose results these are, and up to which generation",
        {
            "state": "random name of the state directory, or of the streaming job",
            "projected_generation": "generation of the state directory, or revision of the job's "
            "newest health document",
            "clock": "append time up to which reports have been read, ms since the epoch",
            "lineage": "digest of that generation, or number of documents written",
            "source": "topic from which a sink takes the results; null for aggregation runs",
        },
    ),
    "stored_windows": (
        "the windows that have reports; the view windows has them for people",
        {
            "type": "type of the metric",
            "mechanism": "by which values were randomized",
            "minimum_reports": "what the plan asked for when this was estimated",
        },
    ),
    "stored_estimates": (
        "what is estimated in them; the view estimates has them for people",
        {
            "kind": "share, group, mean, missing, quantile, cdf, bit, string, unexplained, "
            "arm_share or difference",
            "item": "symbol, coordinate, probability or point, by kind",
            "position": "order within the window",
            "value": "the estimate",
            "standard_error": "its standard error, from the randomization alone",
            "low": "lower end of its interval of 95 %",
            "high": "upper end of its interval of 95 %",
            "display": "closest value that is possible, for charts; the interval does not belong "
            "to it",
            "detection_floor": "smallest true share that is reliably distinguished from zero",
            "significant": "of a candidate string: whether it is certainly there",
            "p_value": "of a candidate string: corrected for the number of candidates",
            "confounded_with": "of a candidate string: others that reports do not distinguish",
            "unit": "share, rank (of listed values, from 1), or the metric's own",
            "method": "how far it can be relied on; null in rows made before there was this column",
            "reach": "by level, how far one forged report can raise, and lower, n times the "
            "estimate; of a mean of numbers that can be missing also the share present, as a "
            "multiple of it; null where no bound is known",
        },
    ),
    "stored_alarms": (
        "windows whose reports are not those of honest devices; the view alarms has them for "
        "people",
        {
            "kind": "coins, levels, bits or cells",
            "statistic": "what was seen",
            "expected": "what honest devices have on average",
            "threshold": "from where on it is an alarm",
            "p_value": "bound of the probability that honest devices show as much, by chance",
            "n": "reports, or pairs of levels, that it is seen in",
            "message": "the same in words",
        },
    ),
    "periods": (
        "the audit of every budget period, in micro-epsilon; the view budgets has it in epsilon",
        {
            "period_start": "when the budget period begins, ms since the epoch",
            "period_end": "when it ends, ms since the epoch; the end is not part of it",
            "closed": "whether nothing more is accepted for it",
            "pseudonyms": "pseudonyms that reported",
            "chains": "recorded values that reports are about",
            "accepted": "of all reports that count, micro-epsilon summed over pseudonyms",
            "observed": "of all reports that arrived, micro-epsilon summed over pseudonyms",
            "most_accepted": "largest accepted amount of a single pseudonym, micro-epsilon",
            "most_observed": "largest observed amount of a single pseudonym, micro-epsilon",
            "over_budget": "pseudonyms revoked for sending more than their budget",
            "equivocation": "pseudonyms revoked for contradicting themselves",
        },
    ),
    "quarantine": (
        "rejected reports by generation and reason; the view rejections has the totals",
        {
            "generation": "of the state directory; 0 for those whose retention is over, and in a "
            "sink's database for all",
            "reason": "why they were rejected",
            "rows": "reports rejected",
            "requeued": "of these, taken again since; null if that is not known",
        },
    ),
    "sink_offsets": (
        "up to where a sink has read the topic of estimates",
        {
            "topic": "name of the topic; 'a pipeline' where documents come from one directly",
            "partition": "number of the partition",
            "topic_id": "id of the topic, by which one that was made anew is noticed",
            "next": "offset after the last record that was written",
        },
    ),
    "sink_revisions": (
        "the revision that the results have of each document",
        {"key": "key of the document"},
    ),
    "sink_jobs": (
        "other jobs whose documents a sink has read",
        {
            "topic": "name of the topic",
            "job": "random name of the job",
            "seen": "order in which they were read last",
            "replaced": "whether another job has replaced it",
        },
    ),
    "health": (
        "the state of a streaming job, as it reports it",
        {"document": "its numbers: reports, duplicates, chains, pseudonyms, offsets, clock"},
    ),
}


def add_comments() -> None:
    """Add comments to tables and columns that have none of their own."""
    for metadata in (tables.METADATA, tables.SINK_METADATA):
        for table in metadata.sorted_tables:
            about, own = _COMMENTS.get(table.name, (None, {}))
            table.comment = table.comment or about
            for column in table.columns:
                said = own.get(column.name) or _COMMON.get(column.name)
                column.comment = column.comment or said
