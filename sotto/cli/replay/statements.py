"""What a simulated device's store does for each statement that the SDK executes.

A device's store is SQLite. Of a simulated one, which lasts as long as its rows, nothing has to
survive a crash, and nobody else uses it: a :class:`SimulatedConnection` stands where the store has
its connection, and knows each of the SDK's statements by its text. They store and find; whatever is
decided is decided by the SDK above them. One that is not known here is an error, so that a change
of the SDK's tables cannot go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from clientsdk.store import outbox, schema
from sotto.cli.replay.simulated_tables import (
    CHARGED,
    DELIVERED,
    DUE,
    EVENT,
    ID,
    METRIC,
    PAYLOADS,
    PERIOD,
    PLAN,
    Result,
    Tables,
)

#: Bytes that a store of the SDK takes before anything is recorded.
EMPTY_BYTES = 1 << 17
Answer: TypeAlias = Callable[..., Result]
STATEMENTS: dict[str, Answer] = {}
_NOTHING = Result()
_NO_ROW, _ONE_ROW = Result(changed=0), Result(changed=1)


class SimulatedConnection(Tables):
    """Stands for the connection to a device's database, and for its cursor."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Result:
        """Do what a statement of the SDK says; NotImplementedError if it is none that is known."""
        try:
            do = STATEMENTS[statement]
        except KeyError:
            raise NotImplementedError(
                f"sotto.cli.replay.statements lacks this statement of the SDK: {statement}"
            ) from None
        return do(self, *values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Do it for each of some rows of values."""
        for values in rows:
            self.execute(statement, values)


def answers(*statements: str) -> Callable[[Answer], Answer]:
    """Register what answers statements of these texts."""

    def register(answer: Answer) -> Answer:
        STATEMENTS.update(dict.fromkeys(statements, answer))
        return answer

    return register


# What a new store is made of, and how it is opened.

_EMPTY = [
    *(text for since in schema.TABLES.values() for text in since if not text.startswith("INSERT")),
    f"PRAGMA application_id = {schema.APPLICATION}",
    f"PRAGMA user_version = {schema.VERSION}",
    "BEGIN IMMEDIATE",
    "COMMIT",
]


@answers(*_EMPTY)
def _nothing(tables: Tables) -> Result:
    return _NOTHING


@answers("SELECT count(*) FROM sqlite_master")
def _count_tables(tables: Tables) -> Result:
    return Result([(len(schema.TABLES) if tables.store else 0,)])


@answers("PRAGMA application_id")
def _application(tables: Tables) -> Result:
    return Result([(schema.APPLICATION if tables.store else 0,)])


@answers("PRAGMA user_version")
def _version(tables: Tables) -> Result:
    return Result([(schema.VERSION,)])


@answers("PRAGMA page_count")
def _page_count(tables: Tables) -> Result:
    chains = [row for each in tables.chains.values() for row in each.rows.values()]
    taken = sum(outbox.ROW + len(row[PAYLOADS]) for row in chains)
    return Result([(EMPTY_BYTES + taken,)])


@answers("PRAGMA freelist_count")
def _freelist_count(tables: Tables) -> Result:
    return Result([(0,)])


@answers("PRAGMA page_size")
def _page_size(tables: Tables) -> Result:
    return Result([(1,)])


@answers("INSERT INTO device VALUES (1, ?, ?, ?, ?, ?, ?, 0, ?, 0, 0)")
def _make_device(tables: Tables, *pinned: Any) -> Result:
    tables.store, tables.collector, tables.period_ms, *ceilings, tables.consent, period = pinned
    tables.ceilings, tables.period, tables.consents = tuple(ceilings), period, 0
    return _ONE_ROW


@answers("INSERT INTO secret VALUES (1, ?)", "UPDATE secret SET value = ?")
def _keep_secret(tables: Tables, secret: bytes) -> Result:
    tables.secret = secret
    return _ONE_ROW


@answers("SELECT value FROM secret")
def _secret(tables: Tables) -> Result:
    return Result([(tables.secret,)])


@answers("INSERT INTO mark VALUES (1, 0, 0, 0, 0)")
def _make_mark(tables: Tables) -> Result:
    return _ONE_ROW


@answers("SELECT generation, damaged, restored FROM mark")
def _generation(tables: Tables) -> Result:
    return Result([(0, 0, 0)])


@answers("SELECT carried, damaged, restored FROM mark")
def _carried(tables: Tables) -> Result:
    return Result([(0, 0, 0)])


@answers("SELECT 1 FROM panel")
def _has_panel(tables: Tables) -> Result:
    return Result(() if tables.panel is None else [(1,)])


@answers("INSERT INTO panel VALUES (1, ?, ?)")
def _keep_panel(tables: Tables, secret: bytes, since: int) -> Result:
    tables.panel = secret, since
    return _ONE_ROW


@answers("SELECT secret, since FROM panel")
def _panel(tables: Tables) -> Result:
    return Result([tables.panel])


@answers("SELECT collector, period_ms FROM device")
def _pinned(tables: Tables) -> Result:
    return Result([(tables.collector, tables.period_ms)])


@answers("SELECT store FROM device")
def _store(tables: Tables) -> Result:
    return Result([(tables.store,)])


@answers("SELECT store, collector, period_ms FROM device")
def _identity_of_store(tables: Tables) -> Result:
    return Result([(tables.store, tables.collector, tables.period_ms)])


@answers(
    "SELECT consent, consents, ceiling_period, ceiling_lifetime, period,"
    " erasures_owed, erasures_done FROM device"
)
def _device(tables: Tables) -> Result:
    return Result([(tables.consent, tables.consents, *tables.ceilings, tables.period, 0, 0)])


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


@answers("UPDATE device SET period = ?")
def _begin_period(tables: Tables, period: int) -> Result:
    tables.period = period
    return _ONE_ROW


@answers(
    "SELECT name, consent FROM consent_group",
    "SELECT name, consent FROM consent_group ORDER BY name",
)
def _groups(tables: Tables) -> Result:
    return Result(sorted(tables.said.items()))


@answers("DELETE FROM consent_group")
def _forget_groups(tables: Tables) -> Result:
    tables.said.clear()
    return _NOTHING


@answers("INSERT INTO consent_group VALUES (?, ?)")
def _say(tables: Tables, name: str, consent: str) -> Result:
    tables.said[name] = consent
    return _ONE_ROW


# Plans.


@answers("SELECT id FROM plan WHERE digest = ?")
def _plan_number(tables: Tables, digest: bytes) -> Result:
    return Result((number,) for number, plan in tables.plans.items() if plan[0] == digest)


@answers("INSERT INTO plan (digest, body, expires) VALUES (?, ?, ?)")
def _add_plan(tables: Tables, *plan: Any) -> Result:
    tables.plans[len(tables.plans) + 1] = plan
    return _ONE_ROW


@answers("SELECT id, digest FROM plan")
def _digests(tables: Tables) -> Result:
    return Result((number, plan[0]) for number, plan in tables.plans.items())


@answers("SELECT id FROM plan")
def _plan_numbers(tables: Tables) -> Result:
    return Result((number,) for number in tables.plans)


@answers("SELECT id FROM plan WHERE expires <= ?")
def _expired_plans(tables: Tables, moment: int) -> Result:
    return Result((number,) for number, plan in tables.plans.items() if plan[2] <= moment)


@answers("SELECT min(expires) FROM plan WHERE expires > ?")
def _next_expiry(tables: Tables, moment: int) -> Result:
    later = (plan[2] for plan in tables.plans.values() if plan[2] > moment)
    return Result([(min(later, default=None),)])


# The ledger.


@answers("SELECT reserved, tallies FROM ledger WHERE period = ?")
def _account(tables: Tables, period: int) -> Result:
    found = tables.ledger.get(period)
    return _NOTHING if found is None else Result([(found[0], found[2])])


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


@answers("UPDATE ledger SET reserved = ?, tallies = ? WHERE period = ?")
def _write_account(tables: Tables, reserved: int, tallies: str, period: int) -> Result:
    found = tables.ledger[period]
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
    periods = [each for each in tables.unfolded if each != current and each not in tables.chains]
    return Result((each, tables.ledger[each][2]) for each in sorted(periods))


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
    once = sum(cost for _, cost, _ in tables.permanent.values())
    reserved = once + sum(each[0] for each in tables.ledger.values())
    spent = once + sum(each[1] for each in tables.ledger.values())
    degraded = tables.degraded.values()
    return Result([(reserved - sum(d[0] for d in degraded), spent - sum(d[1] for d in degraded))])


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


@answers("SELECT * FROM degraded")
def _degraded(tables: Tables) -> Result:
    return Result((period, *parts) for period, parts in tables.degraded.items())


# Pseudonyms and keys.


@answers("SELECT period, value, NULL FROM pseudonym WHERE value <> x''")
def _pseudonyms(tables: Tables) -> Result:
    return Result((period, value, None) for period, value in tables.pseudonyms.items() if value)


@answers("SELECT period, value, NULL FROM pseudonym WHERE value <> x'' AND period = ?")
def _pseudonym(tables: Tables, period: int) -> Result:
    value = tables.pseudonyms.get(period)
    return Result([(period, value, None)]) if value else _NOTHING


@answers("SELECT period, pseudonym, seed FROM signing WHERE 1")
def _keys(tables: Tables) -> Result:
    return Result((period, *kept) for period, kept in tables.signing.items())


@answers("SELECT period, pseudonym, seed FROM signing WHERE 1 AND period = ?")
def _key(tables: Tables, period: int) -> Result:
    kept = tables.signing.get(period)
    return _NOTHING if kept is None else Result([(period, *kept)])


@answers("SELECT period, lower(hex(pseudonym)) FROM signing")
def _signed_pseudonyms(tables: Tables) -> Result:
    return Result((period, name.hex()) for period, (name, _) in tables.signing.items())


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
    gone = [each for each in named if each < current and each not in tables.chains]
    for period in gone:
        del named[period]
    return Result(changed=len(gone)) if gone else _NO_ROW


@answers(
    "DELETE FROM pseudonym WHERE period < ? AND NOT EXISTS"
    " (SELECT 1 FROM chain WHERE chain.period = pseudonym.period)"
)
def _forget_pseudonyms(tables: Tables, current: int) -> Result:
    return _forget(tables.pseudonyms, tables, current)


@answers(
    "DELETE FROM signing WHERE period < ? AND NOT EXISTS"
    " (SELECT 1 FROM chain WHERE chain.period = signing.period)"
)
def _forget_keys(tables: Tables, current: int) -> Result:
    return _forget(tables.signing, tables, current)


# The outbox.


@answers("INSERT INTO chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
def _add_chain(tables: Tables, *row: Any) -> Result:
    tables.of_period(row[PERIOD]).add(list(row))
    return _ONE_ROW


@answers(
    "SELECT min((SELECT min(due) FROM chain WHERE chain.period = pseudonym.period)) FROM pseudonym"
)
def _next_due(tables: Tables) -> Result:
    return Result([(min((each.keys[0][0] for _, each in tables.named()), default=None),)])


@answers("SELECT count(*) FROM pseudonym JOIN chain USING (period) WHERE due <= ?")
def _count_due(tables: Tables, moment: int) -> Result:
    return Result([(sum(each.count_due(moment) for _, each in tables.named()),)])


@answers(
    "SELECT chain.* FROM pseudonym JOIN chain USING (period)"
    " WHERE due <= ? AND (? IS NULL OR period = ?) AND plan NOT IN ()"
    " ORDER BY period, due, id LIMIT ?"
)
def _due_chains(
    tables: Tables, moment: int, period: int | None, again: int | None, limit: int
) -> Result:
    due = (
        each.rows[key]
        for number, each in tables.named()
        if period is None or number == period
        for key in each.keys[: each.count_due(moment)]
    )
    return Result(islice(due, limit))


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
    chains = tables.chains[period]
    chains.remove((due, chain))
    row[DUE], row[DELIVERED] = moment, charged
    chains.add(row)
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
    return Result(changed=len(gone))


@answers(
    "SELECT lower(hex(id)), plan, metric, period, event, due, charged, delivered"
    " FROM chain ORDER BY due, id"
)
def _pending(tables: Tables) -> Result:
    rows = [row for each in tables.chains.values() for row in each.rows.values()]
    rows.sort(key=lambda row: (row[DUE], row[ID]))
    places = PLAN, METRIC, PERIOD, EVENT, DUE, CHARGED, DELIVERED
    return Result((row[ID].hex(), *(row[place] for place in places)) for row in rows)


# Reservoirs, permanent responses, and counts of items.


@answers("SELECT cost FROM reservoir WHERE tally = ?")
def _reservoir(tables: Tables, tally: str) -> Result:
    found = tables.reservoirs.get(tally)
    return _NOTHING if found is None else Result([(found[2],)])


@answers("DELETE FROM reservoir")
def _empty_reservoirs(tables: Tables) -> Result:
    tables.reservoirs.clear()
    return _NOTHING


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


@answers("INSERT OR REPLACE INTO reservoir VALUES (?, ?, ?, ?)")
def _keep_in_reservoir(tables: Tables, tally: str, due: int, chain: bytes, cost: int) -> Result:
    tables.reservoirs[tally] = due, chain, cost
    return _ONE_ROW


@answers("SELECT response FROM permanent WHERE binding = ?")
def _response(tables: Tables, binding: bytes) -> Result:
    found = tables.permanent.get(binding)
    return _NOTHING if found is None else Result([(found[2],)])


@answers("UPDATE permanent SET cost = cost + ?, response = ? WHERE binding = ? AND response = x''")
def _renew_response(tables: Tables, cost: int, response: bytes, binding: bytes) -> Result:
    # No response of a simulated device is ever erased.
    return _NO_ROW


@answers("INSERT INTO permanent VALUES (?, ?, ?, ?)")
def _keep_response(
    tables: Tables, binding: bytes, tally: str, cost: int, response: bytes
) -> Result:
    tables.permanent[binding] = tally, cost, response
    return _ONE_ROW


@answers("SELECT tally, cost, response <> x'' FROM permanent ORDER BY tally, binding")
def _charges(tables: Tables) -> Result:
    found = sorted(
        (tally, key, cost, bool(r)) for key, (tally, cost, r) in tables.permanent.items()
    )
    return Result((tally, cost, held) for tally, _, cost, held in found)


@answers("SELECT holder, cost FROM counting WHERE period = ? AND tally = ?")
def _claim(tables: Tables, period: int, tally: str) -> Result:
    found = tables.counting.get((period, tally))
    return _NOTHING if found is None else Result([found[:2]])


@answers("INSERT OR REPLACE INTO counting VALUES (?, ?, ?, ?, ?)")
def _take_claim(tables: Tables, period: int, tally: str, *claim: Any) -> Result:
    tables.counting[period, tally] = claim
    return _ONE_ROW


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
