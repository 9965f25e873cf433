"""Beam transforms from messages to estimates, the runners, and the pool of workers of engines.

``docs/guides/beam.md`` has the contract, and examples with other sources. ``sotto stream`` submits
the transforms as a streaming job; ``sotto aggregate`` has a bounded pipeline of its own
(:mod:`pipelines.bounded`).
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
