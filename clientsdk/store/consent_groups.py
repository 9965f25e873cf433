"""Consent to some of a plan's groups of metrics: what was said of each, and what a no erases.

A row of the table ``consent_group`` holds the consent to one group, by name, in every plan of the
collector that has a group of that name. A row named by :func:`alone` speaks for a plan without
groups, and the row :data:`OTHERS` for all that has no row. Without that row the answer is yes, as
in files from before there were groups. None of this counts unless consent as a whole is given.
Functions with a connection belong in a transaction of the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from sqlite3 import Connection

from clientsdk.outcomes import Consent
from clientsdk.store import claims, measures, permanent
from clientsdk.store.accounts import tally_name
from clientsdk.store.plans import Plans
from sotto.errors import StoreError
from sotto.plan.compiled import CompiledPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

GIVEN, WITHDRAWN, NEVER_GIVEN = Consent.GIVEN, Consent.WITHDRAWN, Consent.NEVER_GIVEN
#: Consent by group.
Said: TypeAlias = Mapping[str, Consent]
#: The row for all that has no row; no group can have this name.
OTHERS = "*"


def read(connection: Connection) -> Said:
    """Return what was said; ValueError if the file is damaged."""
    rows = connection.execute("SELECT name, consent FROM consent_group").fetchall()
    return {str(name): Consent(consent) for name, consent in rows}


def write(connection: Connection, said: Said) -> None:
    connection.execute("DELETE FROM consent_group")
    connection.executemany("INSERT INTO consent_group VALUES (?, ?)", said.items())


def alone(plan: str) -> str:
    """Return the name that stands for a whole plan without groups; no group has such a name.

    Each plan has its own: a yes to one says nothing of another that had groups once.

    >>> alone("editor")
    'editor/'
    """
    return tally_name(plan, "")


def names(plan: CompiledPlan) -> tuple[str, ...]:
    """Return what a person can agree to: each group of a plan or, without groups, all of it."""
    return tuple(name for name, _ in plan.groups) or (alone(plan.plan),)


def of(said: Said, name: str) -> Consent:
    """Return what was said of a group, or of a plan without groups."""
    return said.get(name, said.get(OTHERS, GIVEN))


def anything(said: Said) -> bool:
    """Whether there may be a group with consent, provided that it is given as a whole.

    >>> anything({}), anything({"crashes": Consent.WITHDRAWN, OTHERS: Consent.NEVER_GIVEN})
    (True, False)
    """
    return said.get(OTHERS, GIVEN) is GIVEN or GIVEN in said.values()


def given(
    connection: Connection,
    plans: Plans,
    said: Said,
    whole: Consent,
    groups: Collection[str] | None,
    *,
    again: bool,
) -> Said:
    """Return what is said once consent is given, to some groups or to all of the opened plan.

    ``whole`` is the consent so far. Without ``again`` a withdrawn group stays withdrawn. A yes to
    all then adds no group that holds a metric of a withdrawn one, as where a version renames the
    group or has none. If the whole was withdrawn, groups that are not named stay withdrawn.
    """
    found = dict(said)
    if whole is not GIVEN:
        # A group that is asked anew loses its earlier consent.
        found = {name: each for name, each in said.items() if each is WITHDRAWN}
        if groups is not None or found:
            found.setdefault(OTHERS, whole)
    refused = _refused(connection, plans, said) if groups is None and not again else ()
    for group in names(plans.opened) if groups is None else groups:
        if again or (of(found, group) is not WITHDRAWN and group not in refused):
            found[group] = GIVEN
    usual = found.get(OTHERS, GIVEN)
    return {name: each for name, each in found.items() if name == OTHERS or each is not usual}


def _refused(connection: Connection, plans: Plans, said: Said) -> set[str]:
    """Return the opened plan's groups with a metric that some version has in a withdrawn group.

    A plan without groups counts as one, named by :func:`alone`.
    """
    if WITHDRAWN not in said.values():
        return set()
    plan = plans.opened
    metrics = {
        metric.name
        for _, version in readable(connection, plans)
        for metric in version.metrics
        if version.plan == plan.plan and said.get(metric.group or "") is WITHDRAWN
    }
    return {metric.group or alone(plan.plan) for metric in plan.metrics if metric.name in metrics}


def withdrawn(connection: Connection, plans: Plans, said: Said, groups: Collection[str]) -> Said:
    """Return what is said once some groups are withdrawn.

    All other groups that are known now keep what was said of them. Two things that may hold the
    same metrics under another name have no yes: groups that only a later plan has, and a version
    without groups of a plan that has one of these.
    """
    known, regrouped = set(names(plans.opened)), {alone(plans.opened.plan)}
    for _, plan in readable(connection, plans):
        known.update(names(plan))
        if any(name in groups for name, _ in plan.groups):
            regrouped.add(alone(plan.plan))
    found = {name: of(said, name) for name in known.union(said) if name not in regrouped}
    return {OTHERS: NEVER_GIVEN, **found, **dict.fromkeys(groups, WITHDRAWN)}


def readable(connection: Connection, plans: Plans) -> list[tuple[int, CompiledPlan]]:
    """Return the store's plans by number, but for those that cannot be read."""
    found = []
    for (number,) in connection.execute("SELECT id FROM plan").fetchall():
        with suppress(StoreError):
            found.append((int(number), plans.get(connection, int(number))))
    return found


def erase(connection: Connection, plans: Plans, groups: Collection[str]) -> None:
    """Erase what is stored about the metrics of some groups.

    A metric is known by plan and name: values that an earlier version recorded of it, in another
    group or none, go too. So do all chains of a plan that cannot be read.
    """
    known = dict(readable(connection, plans))
    unreadable = f"DELETE FROM chain WHERE plan NOT IN ({','.join('?' * len(known))})"
    connection.execute(unreadable, [*known])
    tallies = {
        tally_name(plan.plan, metric.name)
        for plan in known.values()
        for metric in plan.metrics
        if metric.group in groups
    }
    connection.executemany(
        "DELETE FROM chain WHERE plan = ? AND metric = ?",
        [
            (number, metric.index)
            for number, plan in known.items()
            for metric in plan.metrics
            if tally_name(plan.plan, metric.name) in tallies
        ],
    )
    for tally in tallies:
        forget(connection, tally)


def forget(connection: Connection, tally: str | None = None) -> None:
    """Forget reservoirs, counts, measures and permanent responses, all or those of one metric.

    The store still knows which of them were used in this period.
    """
    connection.execute(
        "UPDATE reservoir SET due = 0, chain = x'', cost = 0 WHERE ? IS NULL OR tally = ?",
        (tally, tally),
    )
    claims.abandon(connection, tally)
    measures.erase(connection, tally)
    permanent.erase(connection, tally)
