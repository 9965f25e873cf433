"""The settings of a pipeline, which all its stages share, and when periods and windows end.

:class:`SottoOptions` are the settings as Beam options, :class:`Stream` as the stages have them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from pipelines.beam.plans import PlanSource
from sotto.errors import ParameterError
from sotto.log.reader import EARLIEST
from sotto.plan.registry import Registry

_ALWAYS: Mapping[bytes, int] = MappingProxyType({})


@dataclass(frozen=True)
class Stream:
    """Settings that all stages know; crosses Beam pickled."""

    job: str  #: random name of the deployment, which its documents carry
    plans: PlanSource
    linger: int = 10_000  #: for how long rows are gathered before they are counted, ms
    every: int = 30_000  #: the shortest time between two documents of one key (``EMIT``), ms
    #: A partition that is read to its end, and has given nothing for so long, ms, does not hold the
    #: watermark back any more.
    idle: int = 60_000
    #: Bytes of live states that a worker process keeps; any can be restored from the engine's.
    cache: int = 1 << 30

    def __post_init__(self) -> None:
        if not (isinstance(self.job, str) and self.job):
            raise ParameterError(
                "the documents of a pipeline carry the name of its job, a text: give --sotto_job, "
                "or SottoOptions(sotto_job=...); a job that goes on from its own state keeps it"
            )
        times = {"linger": self.linger, "publish_every": self.every, "idle": self.idle}
        for name, value in times.items():
            if not (isinstance(value, int) and value >= 1):
                raise ParameterError(f"{name} {value!r} must be a whole number of at least 1 ms")


class SottoOptions(PipelineOptions):
    """Options of the transforms, for command lines and ``view_as``.

    Examples
    --------
    >>> options = PipelineOptions(["--sotto_job=orders", "--sotto_linger_ms=2000"])
    >>> options.view_as(SottoOptions).sotto_linger_ms
    2000
    """

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--sotto_job",
            help="name that documents carry; it stays the same for as long as a job goes on "
            "from its own state, and is another one for a job that counts from the beginning",
        )
        add(
            "--sotto_linger_ms",
            type=int,
            default=Stream.linger,
            help="for how long a stream gathers rows before it counts them, ms",
        )
        add(
            "--sotto_publish_every_ms",
            type=int,
            default=Stream.every,
            help="a stream publishes a window, a period or the job's health at most so often, ms",
        )
        add(
            "--sotto_idle_ms",
            type=int,
            default=Stream.idle,
            help="a partition read by Sotto's own source that has given nothing for so long, "
            "though it is read to its end, does not hold the watermark back any more, ms",
        )


def stream_of(pipeline: beam.Pipeline, plans: PlanSource) -> Stream:
    """Return the settings that a pipeline's options say."""
    options = pipeline._options.view_as(SottoOptions)
    return Stream(
        options.sotto_job,
        plans,
        options.sotto_linger_ms,
        options.sotto_publish_every_ms,
        options.sotto_idle_ms,
    )


def moment(ms: int) -> Timestamp:
    return MIN_TIMESTAMP if ms == EARLIEST else Timestamp(micros=ms * 1000)


def closing_time(period: int, registry: Registry, since: Mapping[bytes, int] = _ALWAYS) -> int:
    """Return the time, ms, from which on no report of a budget period can count any more.

    ``since``: by fingerprint, when a plan came, ms; plans that are not in it were there at first. A
    plan that comes after a period is over by the others' horizons does not open it again.

    Examples
    --------
    The period from 0 to 10 is over at 12; the second plan has a horizon of 50.

    >>> from types import SimpleNamespace as Plan
    >>> plans = [Plan(fingerprint=b"one", horizon=2), Plan(fingerprint=b"two", horizon=50)]
    >>> registry = Plan(period=10, plans=plans)
    >>> [closing_time(0, registry, {b"two": came}) for came in (0, 11, 12)]
    [60, 60, 12]
    """
    end = (period + 1) * registry.period
    horizons = sorted((since.get(plan.fingerprint, 0), plan.horizon) for plan in registry.plans)
    over = end + max(horizon for came, horizon in horizons if came == horizons[0][0])
    for came, horizon in horizons:
        if came < over:
            over = max(over, end + horizon)
    return over


def next_settling(time: int, registry: Registry) -> int:
    """Return the first time after ``time``, ms, at which some window is complete.

    A window is complete when all levels of its reports were due and the plan's grace is over.
    """
    return min(((time - lag) // window + 1) * window + lag for window, lag in _windows(registry))


@lru_cache(maxsize=16)
def _windows(registry: Registry) -> frozenset[tuple[int, int]]:
    """Return the lengths of windows, ms, each with how long after its end a window is complete."""
    return frozenset(
        (metric.window, registry.complete_at(fingerprint, metric.index, 0) - metric.window)
        for fingerprint, plan in registry.by_fingerprint.items()
        for metric in plan.metrics
    )
