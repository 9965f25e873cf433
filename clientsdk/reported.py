"""Reports as tests of apps read them; :mod:`clientsdk.testing` is where to take them from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from clientsdk.meanings import meaning
from mechanisms.frozen import frozen
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import Row, decode_message

#: Of the reports that were there instead, an error shows so many.
_SHOWN = 10


@frozen
class Reported:
    """One report that was sent.

    Attributes
    ----------
    metric : str
        Its name in the plan.
    rung : int
        Counted from 1, the weakest.
    epsilon : int
        Micro-epsilon that the chain has cost up to this rung.
    event : int
        Truncated time of the recording, in milliseconds since the epoch.
    says : str
        What the payload says: an output of the mechanism, not the value.
    pseudonym, chain, payload : bytes
    shard, message : int
        Its message's shard, and which message it was, counted from 0.
    """

    metric: str
    rung: int
    epsilon: int
    event: int
    says: str
    pseudonym: bytes
    chain: bytes
    payload: bytes
    shard: int
    message: int

    def __str__(self) -> str:
        return f"{self.metric}, rung {self.rung}, says {self.says}"


class Reports(Sequence[Reported]):
    """Reports in the order in which they were sent.

    Parameters
    ----------
    plan : CompiledPlan
    reports : iterable of Reported
    about : str
        What all of them have in common, for errors.
    """

    def __init__(
        self, plan: CompiledPlan, reports: Iterable[Reported], about: str = "reports"
    ) -> None:
        self._plan = plan
        self._reports = tuple(reports)
        self._about = about

    def __len__(self) -> int:
        return len(self._reports)

    def __iter__(self) -> Iterator[Reported]:
        return iter(self._reports)

    @overload
    def __getitem__(self, index: int) -> Reported: ...

    @overload
    def __getitem__(self, index: slice) -> Reports: ...

    def __getitem__(self, index: int | slice) -> Reported | Reports:
        if isinstance(index, slice):
            return Reports(self._plan, self._reports[index], self._about)
        return self._reports[index]

    def __repr__(self) -> str:
        """Return how many there are, and the first of them."""
        lines = [f"{len(self)} {self._about}", *(f"  {each}" for each in self._reports[:_SHOWN])]
        if len(self) > _SHOWN:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)

    def of(self, metric: str) -> Reports:
        """Return those of a metric.

        Raises
        ------
        UnknownMetricError
            The plan has none of that name.
        """
        self._plan.metric(metric)
        found = [each for each in self._reports if each.metric == metric]
        return Reports(self._plan, found, f"reports of {metric!r}")

    @property
    def newest(self) -> Reports:
        """The newest of each chain: what an aggregator counts."""
        newest = {each.chain: each for each in sorted(self._reports, key=lambda each: each.rung)}
        kept = [each for each in self._reports if newest[each.chain] is each]
        return Reports(self._plan, kept, f"{self._about}, the newest of each chain")

    def only(self) -> Reported:
        """Return the one report that there is.

        Raises
        ------
        AssertionError
            There are others, or none; it lists them.
        """
        self.exactly(1)
        return self._reports[0]

    def exactly(self, wanted: int) -> Reports:
        """Return these, if there are so many.

        Raises
        ------
        AssertionError
            There are more, or fewer; it lists them.
        """
        if len(self) != wanted:
            raise AssertionError(f"{wanted} wanted, but there are {self!r}")
        return self


def reports_in(plans: Iterable[CompiledPlan], messages: Iterable[tuple[int, bytes]]) -> Reports:
    """Return the reports in messages, as ``(shard, bytes)``.

    Raises
    ------
    ParameterError
        One was made under none of the plans.
    """
    known = {plan.fingerprint: plan for plan in plans}
    found: list[Reported] = []
    for number, (shard, data) in enumerate(messages):
        message = decode_message(data)
        plan = known.get(message.fingerprint)
        if plan is None:
            raise ParameterError(f"message {number} was made under another plan")
        for run in message.groups:
            found += [_report(plan, run.metric, row, shard, number) for row in run.rows]
    return Reports(next(iter(known.values())), found)


def _report(plan: CompiledPlan, index: int, row: Row, shard: int, number: int) -> Reported:
    metric = plan.metrics[index]
    return Reported(
        metric=metric.name,
        rung=row.level + 1,
        epsilon=metric.mechanism.certified(row.level),
        event=row.event,
        says=meaning(metric, row),
        pseudonym=row.pseudonym,
        chain=row.chain,
        payload=row.payload,
        shard=shard,
        message=number,
    )
