"""The contents of quarantine, for people: reason, wrong field and place of each reject, and what a
requeue would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.sinks.quarantine import CURABLE, is_curable, plan_of
from pipelines.storage.directory import StateDirectory
from pipelines.storage.quarantine_files import held, waiting
from sotto.clocks import now_ms
from sotto.columns import table, time_text
from sotto.errors import FormatError
from sotto.log.reader import LATEST
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import UNITS, duration_text
from sotto.plan.registry import names_of
from sotto.wire.decode import Reject
from sotto.wire.format import GROUP, HEADER, ROW, TRAILER, Group, Message, decode_message
from sotto.wire.reasons import Reason

#: How many plans of waiting messages are shown: anybody can send messages that name others.
_SHOWN = 20
#: The offset of each field in a message; fields of groups and rows are the first group's and row's.
_OFFSETS = {"version": 2, "cell": 3, "shard": 4, "fingerprint": 8, "metric": HEADER.size}
_OFFSETS |= {"width": HEADER.size + 2, "level": HEADER.size + GROUP.size}
_OFFSETS |= {"pseudonym": _OFFSETS["level"] + 1, "event": _OFFSETS["level"] + 33}
_OFFSETS |= {"payload": _OFFSETS["level"] + ROW.size}


@dataclass(frozen=True)
class QuarantineEntry:
    """A reject, with its place in quarantine and the plan that it names, if that is known."""

    place: str
    reject: Reject
    #: Whether it was requeued.
    requeued: bool
    plan: CompiledPlan | None

    @cached_property
    def message(self) -> Message | FormatError:
        """The decoded message, or the error that says why it is none."""
        try:
            return decode_message(self.reject.message)
        except FormatError as error:
            return error

    @property
    def group(self) -> Group | None:
        """The first group of the message; a rejected row is a message of one group."""
        return self.message.groups[0] if isinstance(self.message, Message) else None

    @property
    def metric(self) -> CompiledMetric | None:
        """The metric of the first group, if it is known."""
        plan, group = self.plan, self.group
        known = plan.metrics[group.metric : group.metric + 1] if plan and group else ()
        return known[0] if known else None

    @property
    def offset(self) -> int | None:
        """The offset of the wrong field in the message, bytes; None if the whole is wrong."""
        field = self.reject.reason.field
        if field == "signature":
            return max(len(self.reject.message) - TRAILER, 0)
        return _OFFSETS.get(field) if self.reject.message else None

    @property
    def detail(self) -> str:
        """The value that came, and the expected one if it is known; never a payload."""
        reason, plan, metric, group = self.reject.reason, self.plan, self.metric, self.group
        if isinstance(self.message, FormatError):
            return str(self.message) if self.reject.message else ""
        row = self.message.groups[0].rows[0]
        if reason == Reason.UNKNOWN_PLAN:
            return f"{self.message.fingerprint.hex()[:16]}…"
        if reason in (Reason.LATE, Reason.FUTURE):
            far = abs(self.reject.append - row.event)
            unit = next((each for each in UNITS.values() if each <= far), 1)
            apart = duration_text(far - far % unit)
            side = "before" if row.event <= self.reject.append else "after"
            most = f", at most {duration_text(plan.horizon)}" if plan and side == "before" else ""
            return f"{time_text(row.event)} is {apart} {side} it was taken{most}"
        if reason == Reason.MISALIGNED_TIME:
            step = f" is no multiple of {duration_text(plan.resolution)}" if plan else ""
            return f"{row.event} ms{step}"
        if reason == Reason.IMPOSSIBLE_LEVEL:
            return f"level {row.level + 1}" + (f" of {metric.sent}" if metric else "")
        if reason == Reason.WRONG_WIDTH:
            width = f", not {metric.mechanism.payload_width}" if metric else ""
            return f"{len(row.payload)} bytes{width}"
        if reason == Reason.UNKNOWN_METRIC and group is not None:
            return f"metric {group.metric}" + (f" of {len(plan.metrics)}" if plan else "")
        if reason == Reason.UNKNOWN_CELL:
            return f"cell {self.message.cell}" + (f" of {plan.cells}" if plan else "")
        return f"shard {self.message.shard}" if reason == Reason.WRONG_SHARD else ""

    @property
    def cure(self) -> str:
        """The effect that a requeue would have."""
        if self.requeued:
            return "requeued already"
        if not is_curable(self.reject, CURABLE, LATEST):
            return "rejected again"
        if not is_curable(self.reject, CURABLE, now_ms()):
            return "waits for its time"
        if not isinstance(self.message, Message):
            return "needs a newer sotto"
        return "taken again" if self.plan is not None else "needs the plan"

    def document(self, *, full: bool) -> dict[str, Any]:
        """Return the entry as a JSON object; ``full``: with whole ids, and the message's bytes."""
        row = None if self.group is None else self.group.rows[0]
        found: dict[str, Any] = {
            "place": self.place,
            "appended": self.reject.append,
            "reason": self.reject.reason.label,
            "field": self.reject.reason.field or None,
            "offset": self.offset,
            "detail": self.detail,
            "reports": max(self.reject.rows, 1),
            "requeue": self.cure,
            "fingerprint": (plan_of(self.reject.message) or b"").hex() or None,
            "plan": self.plan and f"{self.plan.plan} version {self.plan.version}",
            "metric": self.metric and self.metric.name,
            "level": None if row is None else row.level + 1,
            "event": None if row is None else row.event,
            "pseudonym": None if row is None else row.pseudonym.hex()[: 32 if full else 8],
        }
        return found | ({"message": self.reject.message.hex()} if full else {})


@dataclass(frozen=True)
class QuarantineFilter:
    """The choice of rejects; a field that is left out takes any. Times are in milliseconds."""

    reasons: frozenset[Reason] = frozenset()
    metric: str | None = None
    plan: str | None = None
    since: int | None = None
    until: int | None = None

    def takes(self, each: QuarantineEntry) -> bool:
        """Return whether a reject is asked for; ``plan``: a name, or how a fingerprint begins."""
        append = each.reject.append
        named = (plan_of(each.reject.message) or b"").hex()
        return (
            (not self.reasons or each.reject.reason in self.reasons)
            and (self.metric is None or (each.metric and each.metric.name) == self.metric)
            and (
                self.plan is None
                or (each.plan is not None and each.plan.plan == self.plan)
                or (len(self.plan) >= 8 and named.startswith(self.plan))
            )
            and (self.since is None or append >= self.since)
            and (self.until is None or append <= self.until)
        )


def rejected(
    found: Iterable[tuple[str, Reject, bool]],
    plans: Iterable[CompiledPlan],
    chosen: QuarantineFilter,
) -> list[QuarantineEntry]:
    """Return the chosen entries, newest first.

    ``found``: as from :func:`pipelines.storage.quarantine_files.held`, or :func:`.topic.held`.
    """
    known = {plan.fingerprint: plan for plan in plans}
    all_of_it = (
        QuarantineEntry(place, reject, requeued, known.get(plan_of(reject.message) or b""))
        for place, reject, requeued in found
    )
    return sorted(filter(chosen.takes, all_of_it), key=lambda each: -each.reject.append)


def rejected_by_runs(
    state: Path, plans: Iterable[CompiledPlan], chosen: QuarantineFilter
) -> list[QuarantineEntry]:
    """Return the chosen entries of a state directory, which has plans of its own."""
    directory = StateDirectory(state)
    manifest = directory.manifest()
    registry, _ = directory.plans.with_given([*plans], {})
    return rejected(held(directory, manifest), registry.plans, chosen)


def lines(found: list[QuarantineEntry], most: int, *, full: bool) -> list[str]:
    """Return lines for people: reports by reason and effect of a requeue, then each reject.

    ``most``: how many rejects are listed.
    """
    counted: Counter[tuple[Reason, str]] = Counter()
    for each in found:
        counted[each.reject.reason, each.cure] += max(each.reject.rows, 1)
    if not found:
        return ["nothing in quarantine, or nothing that was asked for"]
    order = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    rows = [(r.label, f"{n:,}", cure, r.text) for (r, cure), n in order]
    shown = [each.document(full=full) for each in found[:most]]
    names = ("plan", "metric", "level", "pseudonym", *(("message",) if full else ()))
    details = [
        [
            each["place"],
            time_text(each["appended"]),
            each["reason"],
            each["field"] or "",
            "" if each["offset"] is None else str(each["offset"]),
            each["detail"],
            *("" if each[name] is None else str(each[name]) for name in names),
        ]
        for each in shown
    ]
    more = len(found) - len(shown)
    return [
        *table(["reason", "reports", "a requeue", "what it is"], rows),
        "",
        *table(["place", "taken", "reason", "field", "offset", "detail", *names], details),
        *([f"and {more:,} more: --limit, or ask for less"] if more > 0 else []),
    ]


def waiting_in(state: Path, plans: list[CompiledPlan], reasons: Iterable[Reason]) -> list[str]:
    """Return lines on what a state directory has in quarantine for some reasons."""
    directory = StateDirectory(state)
    manifest = directory.manifest()
    found: Counter[tuple[str, str]] = Counter()
    for each in waiting(directory, manifest, [*reasons], now_ms()):
        found[each.reason, each.plan] += each.rows
    done: Counter[tuple[str, str]] = Counter()
    for entry in manifest.quarantine:
        for reason, plan, rows in entry.requeued:
            done[reason, plan] += rows
    registry, _ = directory.plans.with_given(plans, {})
    return waiting_lines(found, done, registry.plans)


def waiting_lines(
    waiting: Mapping[tuple[str, str], int],
    done: Mapping[tuple[str, str], int],
    plans: Iterable[CompiledPlan],
) -> list[str]:
    """Return a table of reports by reason and plan, and how many the given plans would requeue.

    ``waiting``, ``done``: numbers of reports that wait and that were requeued, by reason and plan
    fingerprint in hexadecimal.
    """
    names = names_of(plans)
    cured = sum(rows for (_, plan), rows in waiting.items() if plan in names)
    first = f"{cured:,} reports would be requeued"
    if not waiting and not done:
        return [first]
    # Reports of known plans come first, then plans with the most reports.
    order = sorted(
        waiting.keys() | done.keys(),
        key=lambda each: (each[1] not in names, -waiting.get(each, 0), each),
    )
    rows = [
        (
            reason,
            names.get(plan, f"not given ({plan[:16]}…)"),
            f"{waiting.get((reason, plan), 0):,}",
            f"{done.get((reason, plan), 0):,}",
        )
        for reason, plan in order[:_SHOWN]
    ]
    lines = [first, *table(["reason", "plan", "waiting", "requeued"], rows)]
    more = len(order) - _SHOWN
    return lines if more <= 0 else [*lines, f"and {more:,} more plans that nobody gave"]
