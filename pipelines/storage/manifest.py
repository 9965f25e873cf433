"""The committed state: the manifest, the only root of a state directory, and how it advances.

Files that the manifest does not name do not count. It is a frozen value; :func:`advance` makes the
next one, and so decides which states and which quarantine files are dropped because their time is
over.

The manifest is a JSON file and not a transaction of SQLite. Workers write files on any file system
that all of them reach, and these would have to be placed, synced, removed and locked all the same.
Readers need no write access and never block a commit, and a plain copy is whole. The results'
database cannot be the root: it may be on another server, and can always be made again from the
state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipelines.aggregation.audit import Totals
from pipelines.aggregation.decode import Parts, parts_for
from pipelines.aggregation.forgotten import Forgotten, tombstone
from pipelines.aggregation.step import Tally
from pipelines.storage.files import dump_document, load_document
from pipelines.storage.intent import Intent, LastRecord, Requeue, dump_records, load_records
from pipelines.storage.output import JobOutput, StoredState
from sotto.errors import AggregationError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry, check_unchanged, names_of

FORMAT = 4

#: Fields of a manifest that are stored as they are, under their own names.
_PLAIN = (
    *("state", "generation", "clock", "plans", "first_open", "expired", "lineage", "tally"),
    *("requeued", "minima", "files", "forgotten", "time"),
)
#: How many last generations the lineage has.
LINEAGE = 256


class Quarantined(NamedTuple):
    """A quarantine file: the generation that wrote it, the log's clock then, rows by reason.

    The clock is None until the log has one. ``requeued`` has the entries that were taken again, as
    reason, plan and rows. ``rewritten`` is the generation that wrote the file again, without the
    messages of a forgotten pseudonym; 0 if none has.
    """

    generation: int
    clock: int | None
    rows: Mapping[str, int]
    requeued: tuple[tuple[str, str, int], ...] = ()
    rewritten: int = 0

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.generation}.{self.rewritten}" if self.rewritten else str(self.generation)

    def with_requeued(self, requeue: Iterable[Requeue]) -> Quarantined:
        taken = ((r.reason, r.plan, r.rows) for r in requeue if r.generation == self.generation)
        return self._replace(requeued=(*self.requeued, *taken))


class PublishedPage(NamedTuple):
    """The publications of the windows of a page."""

    generation: int  #: the generation that wrote the file
    due: int | None  #: when the next of the windows becomes complete, ms; None if all are


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that is committed."""

    #: Random name of the state directory; a database of its results has it, too.
    state: str
    key: bytes  #: key of the hashes inside the states, 16 bytes; made once
    generation: int = 0  #: the number of the last commit; 0 before the first
    #: Latest append time taken, ms; later records count as no earlier. None before the first.
    clock: int | None = None
    #: The time, ms, up to which the log is known; not before the clock.
    time: int | None = None
    #: Partition to the position up to which its records are taken.
    positions: Mapping[str, int] = field(default_factory=dict)
    #: Partition to the last record taken of it.
    last: Mapping[str, LastRecord] = field(default_factory=dict)
    #: Fingerprint, in hexadecimal, to the name of the plan for people.
    plans: Mapping[str, str] = field(default_factory=dict)
    #: The first budget period that still takes rows; the states of all before it are dropped.
    first_open: int | None = None
    #: (period, part) to the files that keep its state.
    states: Mapping[tuple[int, int], StoredState] = field(default_factory=dict)
    #: Open period to the number of parts that its state is cut into, by shard.
    parts: Mapping[int, int] = field(default_factory=dict)
    #: Page of counts to the generation that wrote it.
    pages: Mapping[int, int] = field(default_factory=dict)
    #: Page to the publications of its windows; earlier releases wrote none.
    published: Mapping[int, PublishedPage] = field(default_factory=dict)
    periods: Mapping[int, Totals] = field(default_factory=dict)  #: closed period to its audit
    quarantine: tuple[Quarantined, ...] = ()  #: the files that are kept, oldest first
    #: Reason to the number of rows whose quarantine was removed after the plans' retention.
    expired: Mapping[str, int] = field(default_factory=dict)
    #: One digest for each of the last generations, the newest last: of the digest before it, of the
    #: generation's intent, and of minima that it changed. Two copies of a state directory that went
    #: different ways differ in it.
    lineage: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)  #: the outcomes of all reports read
    #: Reason to the rows that were rejected for it and then taken again.
    requeued: Mapping[str, int] = field(default_factory=dict)
    #: Fingerprint, in hexadecimal, to the plan's ``minimum_reports``.
    minima: Mapping[str, int] = field(default_factory=dict)
    #: Tombstone of a forgotten pseudonym to the last budget period in which its reports are
    #: rejected as forgotten; once that is closed they are late.
    forgotten: Mapping[str, int] = field(default_factory=dict)
    #: Folder or URI where jobs have their files, chosen once; None for the state directory itself.
    files: str | None = None

    def to_json(self) -> bytes:
        """Return the manifest as it is stored; equal manifests give equal bytes."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return dump_document(
            {
                **plain,
                "format": FORMAT,
                "key": self.key.hex(),
                "lanes": self.positions,
                "marks": dump_records(self.last),
                "states": [[*key, *held.to_list()] for key, held in sorted(self.states.items())],
                "parts": sorted(self.parts.items()),
                "pages": sorted(self.pages.items()),
                "published": [[page, *each] for page, each in sorted(self.published.items())],
                "periods": [[p, *totals.numbers] for p, totals in sorted(self.periods.items())],
                "quarantine": self.quarantine,
            }
        )

    @classmethod
    def from_json(cls, content: bytes) -> Manifest:
        value = load_document(content, "MANIFEST.json", FORMAT)
        if "time" not in value:
            # Release 0.4.0 wrote no time, and of minima when they were committed too.
            value |= {"time": value["clock"], "minima": {}}
        plain = {name: value[name] for name in _PLAIN}
        plain |= {"lineage": tuple(value["lineage"]), "tally": Tally(*value["tally"])}
        return cls(
            **plain,
            key=bytes.fromhex(value["key"]),
            positions=value["lanes"],
            last=load_records(value["marks"]),
            states={
                (period, part): StoredState.of(*rest) for period, part, *rest in value["states"]
            },
            parts=dict(value["parts"]),
            pages=dict(value["pages"]),
            published={page: PublishedPage(*rest) for page, *rest in value.get("published", ())},
            periods={period: Totals(*rest) for period, *rest in value["periods"]},
            quarantine=tuple(
                Quarantined(made, clock, rows, tuple((r, p, n) for r, p, n in requeued), *rest)
                for made, clock, rows, requeued, *rest in value["quarantine"]
            ),
        )

    @property
    def tombstones(self) -> Forgotten:
        """The pseudonyms whose reports are rejected as forgotten."""
        return Forgotten(self.key, frozenset(self.forgotten))

    def digest(self, generation: int) -> str | None:
        """Return the digest of a generation; None if the lineage does not have it (any more)."""
        back = self.generation - generation
        return self.lineage[-1 - back] if 0 <= back < len(self.lineage) else None

    def with_plans(self, plans: Iterable[CompiledPlan]) -> Manifest:
        """Return the manifest with the names and minima of plans added."""
        plans = list(plans)
        minima = {plan.fingerprint_hex: plan.minimum_reports for plan in plans}
        named = replace(self, plans={**self.plans, **names_of(plans)})
        if minima.items() <= self.minima.items():
            return named
        digest = _digest(self.lineage[-1], dump_document(minima))
        lineage = (*self.lineage[:-1], digest)
        return replace(named, minima={**self.minima, **minima}, lineage=lineage)

    def due(self, plans: Iterable[CompiledPlan], time: int | None) -> set[int]:
        """Return the pages that may have something to publish by a time, ms, without new reports.

        These are pages with a window that becomes complete by then; and all pages if one of
        ``plans`` is new, or asks for another number of reports than before.
        """
        if any(self.minima.get(p.fingerprint_hex) != p.minimum_reports for p in plans):
            return {*self.pages}
        return {
            page
            for page in self.pages
            if page not in self.published or _reached(self.published[page].due, time)
        }

    def parts_of(self, intent: Intent, shards: int) -> Parts:
        """Return into how many parts the generation of an intent cuts each period."""
        chains = [totals.chains for totals in self.audit().values()]
        return Parts(self.parts, parts_for([intent.reports, *chains], shards))

    def check_plans(self, registry: Registry) -> None:
        """Raise AggregationError if plans lack one under which reports have been counted.

        Raises PlanError if a plan contradicts one of these.
        """
        check_unchanged(self.plans, registry.plans)
        names = names_of(registry.plans)
        missing = {found: name for found, name in self.plans.items() if found not in names}
        if missing:
            listed = ", ".join(f"{name} ({found})" for found, name in missing.items())
            raise AggregationError(
                f"reports have been counted under plans that are missing: {listed}; "
                "give them with --plan"
            )

    def audit(self) -> dict[int, Totals]:
        """Return the audit of every period, open and closed, summed over shards."""
        return _with_audits(self.periods, self.states)

    def budgets(self, registry: Registry) -> list[dict[str, object]]:
        """Return the rows of all budget periods in the results, oldest first."""
        first_open = self.first_open
        return [
            totals.row(registry, period, first_open is not None and period < first_open)
            for period, totals in sorted(self.audit().items())
        ]

    def health(self) -> dict[str, object]:
        """Return the state of the job, as documents have it."""
        held = self.states.values()
        return {
            **self.tally._asdict(),
            "chains": sum(each.totals.chains for each in held),
            "pseudonyms": sum(each.totals.pseudonyms for each in held),
            "state_bytes": sum(each.size for each in held),
            "clock": self.clock,
            "offsets": dict(self.positions),
        }


def advance(
    manifest: Manifest,
    intent: Intent,
    output: JobOutput,
    registry: Registry,
    now: int | None = None,
) -> Manifest:
    """Return the manifest that commits what a job has written.

    Periods whose horizon the clock has passed are closed: their states are dropped, and their
    audits kept. Quarantine files older than the retention are dropped, and their numbers kept. The
    clock is the log's, made of append times, and never the wall clock; only the age of quarantine
    is taken at ``now``, ms, if that is given and later. Requeued entries stay in quarantine and are
    noted as taken. A forgotten pseudonym leaves a tombstone.
    """
    generation, clock = intent.generation, intent.clock
    states = {**manifest.states, **output.states}
    first_open = _first_open(manifest.first_open, clock, registry)
    closed = {
        key: held for key, held in states.items() if first_open is not None and key[0] < first_open
    }
    quarantine = tuple(
        entry._replace(rewritten=generation) if entry.generation in output.rewritten else entry
        for entry in (each.with_requeued(intent.requeue) for each in manifest.quarantine)
    )
    if output.rejects:
        quarantine = (*quarantine, Quarantined(generation, clock, dict(output.rejects)))
    until = clock if clock is None or now is None else max(clock, now)
    kept, removed = _expire(quarantine, until, registry)
    parts = manifest.parts_of(intent, registry.shards)
    opened = {key: held for key, held in states.items() if key not in closed}
    digest = _digest(manifest.lineage[-1] if manifest.lineage else "", intent.to_json())
    requeued = [(each.reason, each.rows) for each in intent.requeue]
    return replace(
        manifest,
        generation=generation,
        clock=clock,
        time=_latest(manifest.time, intent.time, clock),
        positions={**manifest.positions, **intent.ends},
        last={**manifest.last, **intent.last},
        first_open=first_open,
        states=opened,
        parts={period: parts.of(period) for period, _ in sorted(opened)},
        pages={**manifest.pages, **dict.fromkeys(output.pages, generation)},
        periods=_with_audits(manifest.periods, closed),
        quarantine=kept,
        expired=add_rows(manifest.expired, removed),
        lineage=(*manifest.lineage, digest)[-LINEAGE:],
        tally=manifest.tally.plus(output.tally),
        requeued=_summed(manifest.requeued, requeued),
        forgotten=_tombstones(manifest, intent, first_open),
    )


def _reached(due: int | None, time: int | None) -> bool:
    return due is not None and time is not None and due <= time


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _tombstones(manifest: Manifest, intent: Intent, first_open: int | None) -> dict[str, int]:
    """Return the tombstones that are still needed, with those of an intent."""
    kept = {
        each: last
        for each, last in manifest.forgotten.items()
        if first_open is None or last >= first_open
    }
    if intent.last_period is not None:
        made = (tombstone(manifest.key, bytes.fromhex(each)) for each in intent.forget)
        kept |= dict.fromkeys(made, intent.last_period)
    return dict(sorted(kept.items()))


def last_period(now: int, registry: Registry) -> int:
    """Return the last budget period for which a device may have a pseudonym at a time, ms."""
    # The device's clock may be ahead, by less than a period.
    return now // registry.period + 1


def _digest(before: str, content: bytes) -> str:
    return hashlib.sha256(before.encode() + content).hexdigest()[:32]


def _first_open(before: int | None, clock: int | None, registry: Registry) -> int | None:
    """Return the first period whose end plus horizon is after the clock; it never falls."""
    if clock is None:
        return before
    now = (clock - registry.horizon) // registry.period
    return now if before is None else max(before, now)


def expired(manifest: Manifest, registry: Registry, now: int) -> list[Quarantined]:
    """Return the quarantine files whose retention is over by ``now``, ms, or by the log's clock."""
    clock = None if manifest.clock is None else max(manifest.clock, now)
    return _expire(manifest.quarantine, clock, registry)[1]


def _expire(
    quarantine: tuple[Quarantined, ...], clock: int | None, registry: Registry
) -> tuple[tuple[Quarantined, ...], list[Quarantined]]:
    """Return the quarantine files that are kept, and those that are not.

    For a file from before the log had a clock, retention begins at the clock's first reading.
    """
    if clock is None:
        return quarantine, []
    retention = min(plan.retention for plan in registry.plans)
    kept, removed = [], []
    for entry in quarantine:
        since = clock if entry.clock is None else entry.clock
        if since + retention > clock:
            kept.append(entry._replace(clock=since))
        else:
            removed.append(entry)
    return tuple(kept), removed


def add_rows(rows: Mapping[str, int], entries: Iterable[Quarantined]) -> dict[str, int]:
    """Return rows by reason with those of quarantine files added."""
    return _summed(rows, [pair for entry in entries for pair in entry.rows.items()])


def _summed(rows: Mapping[str, int], more: Iterable[tuple[str, int]]) -> dict[str, int]:
    total = dict(rows)
    for reason, number in more:
        total[reason] = total.get(reason, 0) + number
    return total


def _with_audits(
    periods: Mapping[int, Totals], states: Mapping[tuple[int, int], StoredState]
) -> dict[int, Totals]:
    total = dict(periods)
    for (period, _), held in sorted(states.items()):
        before = total.get(period)
        total[period] = held.totals if before is None else before.plus(held.totals)
    return total
