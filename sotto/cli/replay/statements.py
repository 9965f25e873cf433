"""What a simulated device's store does for each statement that the SDK executes.

A device's store is SQLite. Of a simulated one, which lasts as long as its rows, nothing has to
survive a crash, and nobody else uses it: a :class:`SimulatedConnection` stands where the store has
its connection, and knows each of the SDK's statements by its text. They store and find; whatever is
decided is decided by the SDK above them. One that is not known here is an error, so that a change
of the SDK's tables cannot go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from clientsdk.store import outbox, schema
from sotto.cli.replay.simulated_tables import (
    CELL,
    CHARGED,
    DELIVERED,
    DUE,
    EVENT,
    ID,
    METRIC,
    PAYLOADS,
    PERIOD,
    PLAN,
    Changed,
    Result,
    Tables,
)

#: Bytes that a store of the SDK takes before anything is recorded.
EMPTY_BYTES = 1 << 17
Answer: TypeAlias = Callable[..., Result]
STATEMENTS: dict[str, Answer] = {}
_NOTHING = Result()
_NO_ROW, _ONE_ROW = Changed(0), Changed(1)


class SimulatedConnection(Tables):
    """Stands for the connection to a device's database, and for its cursor."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Result:
        """Do what a statement of the SDK says; NotImplementedError if it is none that is known."""
        try:
            answer = STATEMENTS[statement]
        except KeyError:
            raise _unknown(statement) from None
        return answer(self, *values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Do it for each of some rows of values."""
        try:
            answer = STATEMENTS[statement]
        except KeyError:
            raise _unknown(statement) from None
        for values in rows:
            answer(self, *values)


def _unknown(statement: str) -> NotImplementedError:
    return NotImplementedError(
        f"sotto.cli.replay.statements lacks this statement of the SDK: {statement}"
    )


def answers(*statements: str) -> Callable[[Answer], Answer]:
    """Register what answers statements of these texts."""

    def register(answer: Answer) -> Answer:
        STATEMENTS.update(dict.fromkeys(statements, answer))
        return answer

    return register


# How a store is opened.


def _all(tables: Tables) -> list[list[Any]]:
    return [row for each in tables.chains.values() for row in each.rows.values()]


@answers("PRAGMA page_count")
def _page_count(tables: Tables) -> Result:
    return Result([(EMPTY_BYTES + sum(outbox.ROW + len(row[PAYLOADS]) for row in _all(tables)),)])


@answers("INSERT INTO device VALUES (1, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0)")
def _make_device(tables: Tables, *pinned: Any) -> Result:
    tables.store, tables.collector, tables.period_ms, *ceilings, tables.consent, period = pinned
    tables.ceilings, tables.period, tables.consents = tuple(ceilings), period, 0
    return _ONE_ROW


@answers(
    "SELECT collector, period_ms, ceiling_period, ceiling_lifetime, consent, period FROM device"
)
def _device_of_ledger(tables: Tables) -> Result:
    pinned = tables.collector, tables.period_ms, *tables.ceilings
    return Result([(*pinned, tables.consent, tables.period)])


@answers("UPDATE device SET consent = ?, consents = consents + 1")
def _consent(tables: Tables, consent: str) -> Result:
    tables.consent = consent
    tables.consents += 1
    return _ONE_ROW


# The ledger.


@answers(
    "INSERT INTO ledger (reserved, tallies, period, spent) VALUES (?, ?, ?, 0)"
    " ON CONFLICT (period) DO UPDATE SET reserved = excluded.reserved, tallies = excluded.tallies"
)
def _reserve(tables: Tables, reserved: int, tallies: str, period: int) -> Result:
    found = tables.ledger.get(period)
    if found is None:
        tables.ledger[period] = [reserved, 0, tallies]
        tables.unfolded.add(period)
    else:
        found[0], found[2] = reserved, tallies
    return _ONE_ROW


@answers("UPDATE ledger SET spent = spent + ? WHERE period = ? AND spent + ? <= min(reserved, ?)")
def _spend(tables: Tables, cost: int, period: int, again: int, ceiling: int) -> Result:
    found = tables.ledger[period]
    spent = found[1] + cost
    if spent > found[0] or spent > ceiling:
        return _NO_ROW
    found[1] = spent
    return _ONE_ROW


@answers(
    "SELECT period, tallies FROM ledger WHERE period <> ? AND tallies LIKE '%/%'"
    " AND NOT EXISTS (SELECT 1 FROM chain WHERE chain.period = ledger.period)"
)
def _unfolded(tables: Tables, current: int) -> Result:
    chains = tables.chains
    periods = [each for each in tables.unfolded if each != current and each not in chains]
    if not periods:
        return _NOTHING
    return Result([(each, tables.ledger[each][2]) for each in sorted(periods)])


@answers("UPDATE ledger SET tallies = ? WHERE period = ?")
def _fold(tables: Tables, tallies: str, period: int) -> Result:
    tables.ledger[period][2] = tallies
    tables.unfolded.discard(period)
    return _ONE_ROW


@answers(
    "INSERT INTO degraded VALUES (?, ?, 0)"
    " ON CONFLICT (period) DO UPDATE SET reserved = reserved + excluded.reserved"
)
def _reserve_degraded(tables: Tables, period: int, cost: int) -> Result:
    tables.degraded.setdefault(period, [0, 0])[0] += cost
    return _ONE_ROW


@answers("UPDATE degraded SET spent = spent + ? WHERE period = ?")
def _spend_degraded(tables: Tables, cost: int, period: int) -> Result:
    tables.degraded[period][1] += cost
    return _ONE_ROW


@answers(
    "SELECT coalesce(sum(reserved), 0), coalesce(sum(spent), 0) FROM ("
    " SELECT reserved, spent FROM ledger"
    " UNION ALL SELECT -reserved, -spent FROM degraded"
    " UNION ALL SELECT cost, cost FROM permanent"
    " UNION ALL SELECT carried, carried FROM mark)"
)
def _add_up(tables: Tables) -> Result:
    reserved = spent = sum([cost for _, cost, _ in tables.permanent.values()])
    for row in tables.ledger.values():
        reserved += row[0]
        spent += row[1]
    for row in tables.degraded.values():
        reserved -= row[0]
        spent -= row[1]
    return Result([(reserved, spent)])


@answers(
    "SELECT ledger.period, lower(hex(value)), reserved, spent, tallies"
    " FROM ledger LEFT JOIN pseudonym USING (period) ORDER BY ledger.period"
)
def _periods(tables: Tables) -> Result:
    names = tables.pseudonyms
    return Result(
        (period, names[period].hex() if period in names else None, *tables.ledger[period])
        for period in sorted(tables.ledger)
    )


# Pseudonyms and keys.


@answers("INSERT OR IGNORE INTO signing VALUES (?, ?, ?)")
def _keep_key(tables: Tables, period: int, pseudonym: bytes, seed: bytes) -> Result:
    tables.signing.setdefault(period, (pseudonym, seed))
    return _NOTHING


@answers(
    "INSERT INTO pseudonym VALUES (?, ?) ON CONFLICT (period)"
    " DO UPDATE SET value = excluded.value WHERE value = x''"
)
def _keep_pseudonym(tables: Tables, period: int, value: bytes) -> Result:
    if not tables.pseudonyms.get(period):
        tables.pseudonyms[period] = value
    return _NOTHING


def _forget(named: dict[int, Any], tables: Tables, current: int) -> Result:
    if not named:
        return _NO_ROW
    gone = [each for each in named if each < current and each not in tables.chains]
    for period in gone:
        del named[period]
    return Changed(len(gone)) if gone else _NO_ROW


# The outbox.


@answers("INSERT INTO chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
def _add_chain(tables: Tables, *row: Any) -> Result:
    tables.of_period(row[PERIOD]).add(list(row))
    return _ONE_ROW


@answers(
    "SELECT chain.* FROM pseudonym JOIN chain USING (period)"
    " WHERE due <= ? AND (? IS NULL OR period = ?) AND plan NOT IN ()"
    " ORDER BY period, due, id LIMIT ?"
)
def _due_chains(
    tables: Tables, moment: int, period: int | None, again: int | None, limit: int
) -> Result:
    due = Result()
    for number, each in tables.named():
        if period is None or number == period:
            rows = each.rows
            due += [rows[key] for key in each.keys[: each.count_due(moment)]]
    del due[limit:]
    return due


@answers("UPDATE chain SET charged = ? WHERE period = ? AND due = ? AND id = ?")
def _charge(tables: Tables, charged: int, period: int, due: int, chain: bytes) -> Result:
    row = tables.find(period, due, chain)
    if row is None:
        return _NO_ROW
    row[CHARGED] = charged
    return _ONE_ROW


@answers(
    "UPDATE chain SET due = ?, delivered = charged"
    " WHERE period = ? AND due = ? AND id = ? AND charged = ?"
)
def _postpone(
    tables: Tables, moment: int, period: int, due: int, chain: bytes, charged: int
) -> Result:
    row = tables.find(period, due, chain)
    if row is None or row[CHARGED] != charged:
        return _NO_ROW
    row[DUE], row[DELIVERED] = moment, charged
    tables.chains[period].move((due, chain), (moment, chain))
    return _ONE_ROW


@answers("DELETE FROM chain WHERE period = ? AND due = ? AND id = ? AND charged = ?")
def _erase(tables: Tables, period: int, due: int, chain: bytes, charged: int) -> Result:
    row = tables.find(period, due, chain)
    if row is None or row[CHARGED] != charged:
        return _NO_ROW
    tables.remove(period, (due, chain))
    return _ONE_ROW


@answers("DELETE FROM chain WHERE plan = ?")
def _erase_plan(tables: Tables, plan: int) -> Result:
    gone = [
        (period, key)
        for period, each in tables.chains.items()
        for key, row in each.rows.items()
        if row[PLAN] == plan
    ]
    for period, key in gone:
        tables.remove(period, key)
    return Changed(len(gone))


@answers(
    "SELECT lower(hex(id)), plan, metric, period, event, due, charged, delivered,"
    " cell FROM chain ORDER BY due, id"
)
def _pending(tables: Tables) -> Result:
    rows = sorted(_all(tables), key=lambda row: (row[DUE], row[ID]))
    places = PLAN, METRIC, PERIOD, EVENT, DUE, CHARGED, DELIVERED, CELL
    return Result((row[ID].hex(), *(row[place] for place in places)) for row in rows)


# Reservoirs, permanent responses, and counts of items.


@answers(
    "DELETE FROM chain WHERE (period, due, id) IN"
    " (SELECT ?, due, chain FROM reservoir WHERE tally = ?)"
)
def _displace(tables: Tables, period: int, tally: str) -> Result:
    found = tables.reservoirs.get(tally)
    if found is None or tables.find(period, found[0], found[1]) is None:
        return _NO_ROW
    tables.remove(period, (found[0], found[1]))
    return _ONE_ROW


@answers("UPDATE permanent SET cost = cost + ?, response = ? WHERE binding = ? AND response = x''")
def _renew_response(tables: Tables, cost: int, response: bytes, binding: bytes) -> Result:
    # No response of a simulated device is ever erased.
    return _NO_ROW


@answers("DELETE FROM counting WHERE period = ? AND tally = ? AND holder = ?")
def _use_claim(tables: Tables, period: int, tally: str, holder: bytes) -> Result:
    found = tables.counting.get((period, tally))
    if found is None or found[0] != holder:
        return _NO_ROW
    del tables.counting[period, tally]
    return _ONE_ROW


@answers("UPDATE counting SET holder = ? WHERE period = ? AND tally = ? AND holder = ?")
def _release_claim(tables: Tables, nobody: bytes, period: int, tally: str, holder: bytes) -> Result:
    found = tables.counting.get((period, tally))
    if found is None or found[0] != holder:
        return _NO_ROW
    tables.counting[period, tally] = (nobody, *found[1:])
    return _ONE_ROW


@answers("DELETE FROM counting WHERE last < ? OR period > ?")
def _forget_claims(tables: Tables, current: int, again: int) -> Result:
    gone = [
        each for each, claim in tables.counting.items() if claim[2] < current or each[0] > again
    ]
    for each in gone:
        del tables.counting[each]
    return _NOTHING


def _found(table: Mapping[Any, Any], key: object) -> list[Any]:
    return [table[key]] if key in table else []


def _set(tables: Tables, name: str, value: object) -> Result:
    setattr(tables, name, value)
    return _ONE_ROW


def _put(table: dict[Any, Any], key: object, row: object) -> Result:
    table[key] = row
    return _ONE_ROW


def _empty(table: dict[Any, Any]) -> Result:
    table.clear()
    return _NOTHING


# What a single expression does; ``t`` are the tables.
STATEMENTS.update(
    {
        "INSERT INTO secret VALUES (1, ?)": lambda t, secret: _set(t, "secret", secret),
        "UPDATE secret SET value = ?": lambda t, secret: _set(t, "secret", secret),
        "INSERT INTO panel VALUES (1, ?, ?)": lambda t, *panel: _set(t, "panel", panel),
        "SELECT secret FROM arm": lambda t: Result([(t.arm,)] if t.arm else ()),
        "INSERT INTO arm VALUES (1, ?)": lambda t, secret: _set(t, "arm", secret),
        "UPDATE device SET period = ?": lambda t, period: _set(t, "period", period),
        "DELETE FROM consent_group": lambda t: _empty(t.said),
        "INSERT INTO consent_group VALUES (?, ?)": lambda t, *row: _put(t.said, *row),
        "DELETE FROM reservoir": lambda t: _empty(t.reservoirs),
        "INSERT OR REPLACE INTO reservoir VALUES (?, ?, ?, ?)": lambda t, tally, *row: _put(
            t.reservoirs, tally, row
        ),
        "INSERT INTO permanent VALUES (?, ?, ?, ?)": lambda t, binding, *row: _put(
            t.permanent, binding, row
        ),
        "INSERT OR REPLACE INTO counting VALUES (?, ?, ?, ?, ?)": lambda t, period, tally, *row: (
            _put(t.counting, (period, tally), row)
        ),
        "SELECT count(*) FROM sqlite_master": lambda t: Result([(1 if t.store else 0,)]),
        "PRAGMA application_id": lambda t: Result([(schema.APPLICATION if t.store else 0,)]),
        "PRAGMA user_version": lambda t: Result([(schema.VERSION,)]),
        "PRAGMA freelist_count": lambda t: Result([(0,)]),
        "PRAGMA page_size": lambda t: Result([(1,)]),
        "SELECT value FROM secret": lambda t: Result([(t.secret,)]),
        "SELECT generation, damaged, restored FROM mark": lambda t: Result([(0, 0, 0)]),
        "SELECT carried, damaged, restored FROM mark": lambda t: Result([(0, 0, 0)]),
        "SELECT secret, since FROM panel": lambda t: Result([t.panel]),
        "SELECT collector, period_ms FROM device": lambda t: Result([(t.collector, t.period_ms)]),
        "SELECT store FROM device": lambda t: Result([(t.store,)]),
        "SELECT store, collector, period_ms FROM device": lambda t: Result(
            [(t.store, t.collector, t.period_ms)]
        ),
        (
            "SELECT consent, consents, ceiling_period, ceiling_lifetime, period,"
            " erasures_owed, erasures_done FROM device"
        ): lambda t: Result([(t.consent, t.consents, *t.ceilings, t.period, 0, 0)]),
        "SELECT name, consent FROM consent_group": lambda t: Result(sorted(t.said.items())),
        "SELECT name, consent FROM consent_group ORDER BY name": lambda t: Result(
            sorted(t.said.items())
        ),
        "SELECT id FROM plan WHERE digest = ?": lambda t, digest: Result(
            (number,) for number, plan in t.plans.items() if plan[0] == digest
        ),
        "SELECT id, digest FROM plan": lambda t: Result(
            (number, plan[0]) for number, plan in t.plans.items()
        ),
        "SELECT id FROM plan": lambda t: Result((number,) for number in t.plans),
        "SELECT id FROM plan WHERE expires <= ?": lambda t, moment: Result(
            (number,) for number, plan in t.plans.items() if plan[2] <= moment
        ),
        "SELECT * FROM degraded": lambda t: Result(
            (period, *parts) for period, parts in t.degraded.items()
        ),
        (
            "SELECT 0, period, value, NULL FROM pseudonym WHERE value <> x''"
            " UNION ALL SELECT 1, period, pseudonym, seed FROM signing"
        ): lambda t: Result(
            [(0, period, value, None) for period, value in t.pseudonyms.items() if value]
            + [(1, period, *kept) for period, kept in t.signing.items()]
        ),
        "SELECT period, lower(hex(pseudonym)) FROM signing": lambda t: Result(
            (period, name.hex()) for period, (name, _) in t.signing.items()
        ),
        (
            "DELETE FROM pseudonym WHERE period < ? AND NOT EXISTS"
            " (SELECT 1 FROM chain WHERE chain.period = pseudonym.period)"
        ): lambda t, current: _forget(t.pseudonyms, t, current),
        (
            "DELETE FROM signing WHERE period < ? AND NOT EXISTS"
            " (SELECT 1 FROM chain WHERE chain.period = signing.period)"
        ): lambda t, current: _forget(t.signing, t, current),
        (
            "SELECT min((SELECT min(due) FROM chain"
            " WHERE chain.period = pseudonym.period AND due > ?)) FROM pseudonym"
        ): lambda t, after: Result([(t.next_due(after),)]),
        "SELECT cost FROM reservoir WHERE tally = ?": lambda t, tally: Result(
            (cost,) for _, _, cost in _found(t.reservoirs, tally)
        ),
        "SELECT response FROM permanent WHERE binding = ?": lambda t, binding: Result(
            (response,) for _, _, response in _found(t.permanent, binding)
        ),
        "SELECT tally, cost, response <> x'' FROM permanent ORDER BY tally, binding": lambda t: (
            Result(
                (tally, cost, bool(response))
                for _, (tally, cost, response) in sorted(
                    t.permanent.items(), key=lambda each: (each[1][0], each[0])
                )
            )
        ),
        "SELECT holder, cost FROM counting WHERE period = ? AND tally = ?": lambda t, *key: Result(
            claim[:2] for claim in _found(t.counting, key)
        ),
        "SELECT reserved, tallies FROM ledger WHERE period = ?": lambda t, period: Result(
            (reserved, tallies) for reserved, _, tallies in _found(t.ledger, period)
        ),
        "SELECT period, value, NULL FROM pseudonym WHERE value <> x'' AND period = ?": (
            lambda t, period: Result(
                (period, value, None) for value in _found(t.pseudonyms, period) if value
            )
        ),
        "SELECT period, pseudonym, seed FROM signing WHERE 1 AND period = ?": (
            lambda t, period: Result((period, *kept) for kept in _found(t.signing, period))
        ),
        "SELECT min(expires) FROM plan WHERE expires > ?": lambda t, moment: Result(
            [(min((plan[2] for plan in t.plans.values() if plan[2] > moment), default=None),)]
        ),
        "SELECT count(*) FROM pseudonym JOIN chain USING (period) WHERE due <= ?": (
            lambda t, moment: Result([(t.count_due(moment),)])
        ),
        "INSERT INTO plan (digest, body, expires) VALUES (?, ?, ?)": lambda t, *plan: _put(
            t.plans, len(t.plans) + 1, plan
        ),
    }
)
