"""Beam transforms from messages to estimates, what runs them, and the pool of workers of engines.

``docs/guides/beam.md`` has the contract, and examples with sources of one's own.
"""

from pipelines.beam.decoding import MessageBlock
from pipelines.beam.plans import FixedPlans, PlansFolder, PlanSource
from pipelines.beam.runners import LabelIds
from pipelines.beam.stream import SottoOptions
from pipelines.beam.transforms import (
    AggregateReports,
    AuditPeriods,
    CountReports,
    DecodeReports,
    EstimateWindows,
    ReadReports,
    ReportHealth,
    WriteEstimates,
    WriteRejects,
)

__all__ = [
    "AggregateReports",
    "AuditPeriods",
    "CountReports",
    "DecodeReports",
    "EstimateWindows",
    "FixedPlans",
    "LabelIds",
    "MessageBlock",
    "PlanSource",
    "PlansFolder",
    "ReadReports",
    "ReportHealth",
    "SottoOptions",
    "WriteEstimates",
    "WriteRejects",
]
