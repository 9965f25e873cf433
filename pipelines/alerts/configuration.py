"""The configuration of alerts: a YAML file, checked before anything is read or sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    ValidationInfo,
    create_model,
    model_validator,
)

from pipelines.alerts.notifiers import NOTIFIERS
from pipelines.alerts.notifiers.base import Notifier, checked_url
from pipelines.storage.yaml_files import YamlModel, read_yaml
from sotto.plan.scalars import Duration

#: The kinds of estimates that can be watched; and those that are watched by default.
Kind = Literal["share", "group", "mean", "missing", "bit", "string"]
KINDS: tuple[Kind, ...] = ("share", "group", "mean", "missing")


class MetricWatched(YamlModel):
    """A metric whose figures are watched."""

    metric: StrictStr
    #: The plan; by default every plan that has the metric.
    plan: StrictStr | None = None
    kinds: tuple[Kind, ...] = Field(default=KINDS, min_length=1)
    #: The items of the estimates; by default all.
    items: tuple[StrictStr, ...] | None = Field(default=None, min_length=1)
    #: Whether each segment is watched by itself, instead of all reports together.
    segments: StrictBool = False
    #: Standard deviation of a change from one window to the next, in the figure's unit; by default
    #: it is learned.
    drift: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    #: The length of a pattern that repeats, such as a week of daily windows; by default none.
    season: Duration | None = None


class Holiday(YamlModel):
    """Days, in UTC, whose windows are neither judged nor learned from."""

    name: StrictStr
    first: date
    last: date
    #: Whether the same days of all other years are meant, too.
    yearly: StrictBool = False

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.first <= self.last < self.first + timedelta(days=366):
            raise ValueError("last must be no earlier than first, and within a year of it")
        return self

    def touches(self, start: datetime, end: datetime) -> bool:
        """Return whether a window from ``start`` to ``end`` overlaps the days."""
        return any(
            begin < end and start < begin + (self.last - self.first) + timedelta(days=1)
            for begin in self._begins(start, end)
        )

    def _begins(self, start: datetime, end: datetime) -> Iterator[datetime]:
        years = range(start.year - 1, end.year + 1) if self.yearly else (self.first.year,)
        for year in years:
            leap_day = (self.first.month, self.first.day) == (2, 29)
            first = date(year, 3, 1) if leap_day and year % 4 else self.first.replace(year=year)
            yield datetime.combine(first, time(), UTC)


#: All keys of ``notify``, each of them optional.
_NotifyFile = create_model(
    "_NotifyFile",
    __base__=YamlModel,
    **{name: (kind | None, None) for name, kind in NOTIFIERS.items()},  # type: ignore[call-overload]
)


def _configured(given: object, info: ValidationInfo) -> dict[str, Notifier]:
    """Return the notifiers that a mapping configures, by their keys."""
    found = _NotifyFile.model_validate(given, context=info.context)
    return {name: notifier for name, notifier in found if notifier is not None}


class Configuration(YamlModel):
    """The figures to watch, how often an alert may be false, holidays, and where alerts go."""

    #: Expected number of false alarms of all watched figures together.
    false_alarms_per_year: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    #: The metrics to watch; by default all.
    metrics: tuple[MetricWatched, ...] | None = Field(default=None, min_length=1)
    #: How long after its end a window is judged; by default when its last level is due.
    settle: Duration | None = None
    holidays: tuple[Holiday, ...] = ()
    #: The address of the page of results, without ``/alerts``: messages then have links to it.
    page: Annotated[StrictStr, AfterValidator(checked_url)] | None = None
    #: The notifiers, by their keys.
    notify: Annotated[dict[str, Notifier], BeforeValidator(_configured)] = Field(
        default_factory=dict
    )


def load_configuration(path: Path) -> Configuration:
    """Return the configuration in a file; paths in it are relative to its folder.

    Raises ParameterError, with all that is wrong and what is expected, if it is none.
    """
    return read_yaml(path, Configuration, None)
