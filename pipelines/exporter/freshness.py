"""Whether results are old: said by the page and ``sotto estimates``; Prometheus has the ages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pipelines.results.fields import milliseconds, moment
from pipelines.results.records import Health
from pipelines.storage.directory import LastRun

#: ms since the job last looked, or since the newest report came. The first is the threshold of the
#: rule SottoNotLooking, the second of SottoNoReports.
NOT_LOOKED, NO_REPORTS = 900_000, 7 * 86_400_000


def stale(health: Iterable[Health], last: LastRun | None, now: int) -> list[str]:
    """Return why results are old at a time, ms, in sentences; none where they are not.

    ``last``: what the state directory says of the last run; None where there is no directory.
    """
    found = []
    if last is not None and now - last.looked > NOT_LOOKED:
        when = f"since {_time(moment(last.looked))}" if last.looked else "at all"
        found.append(f"The job has not looked for reports {when}: is it running?")
    for each in health:
        if each.clock is not None and now - milliseconds(each.clock) > NO_REPORTS:
            found.append(
                f"The results of {each.collector} are old: their newest report came at "
                f"{_time(each.clock)}."
            )
    return found


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
