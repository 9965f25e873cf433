"""Consent to some of a plan's groups: what is recorded and erased, and that a no holds."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from contextlib import closing

import pytest
from device_plans import (
    CONSTANT,
    DAY,
    START,
    WEEK,
    Calling,
    Failing,
    alter,
    items,
    metric,
    plan,
    raw,
    reports,
)
from scripts import FORK, run

from clientsdk import Consent, Outcome, Settings
from clientsdk.ledger import read_file
from clientsdk.store import rollback_guard
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import ParameterError, StoreError

NO_CONSENT = Outcome.NO_CONSENT
GIVEN, WITHDRAWN, NEVER_GIVEN = Consent.GIVEN, Consent.WITHDRAWN, Consent.NEVER_GIVEN
GROUPS = {"look": "How it looks", "use": "What is used"}
#: No two clients on one file draw the same.
SEEDS = itertools.count(1)
METRICS = (
    metric("colour", "every", 2, group="look"),
    metric("late", "reservoir", group="look"),
    metric("shape", "every", 2, group="use"),
    metric("model", "constant", ladder=CONSTANT, group="use"),
    items(group="use"),
)
CEILINGS = {"period": 20_000_000, "lifetime": 640_000_000}


def grouped(*metrics, **changes):
    changes = {"groups": GROUPS, "ceilings": CEILINGS, **changes}
    return plan(*(metrics or METRICS), **changes)


def device(path, *, compiled=None, now=START, consent=True, **options):
    return SeededClient(
        compiled or grouped(),
        seed=next(SEEDS),
        state=path,
        clock=FakeClock(now),
        consent=consent,
        **options,
    )


def fill(client):
    """Record a value of each metric; return what became of them."""
    return {name: client.record(name, "a") for name in ("colour", "late", "shape", "model", "app")}


def rows(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def metrics_sent(client):
    return {report.metric for report in reports(client.publisher.messages)}


def open_groups(client):
    """Which groups values are accepted of, as a new device would; by two metrics with room."""
    names = {"look": "colour", "use": "shape"}
    return {group for group, name in names.items() if client.record(name, "a") is Outcome.ACCEPTED}


def test_consent_is_given_to_all_groups_unless_some_are_named(path):
    client = device(path)
    assert client.group_consent == {"look": GIVEN, "use": GIVEN}
    assert set(fill(client).values()) == {Outcome.ACCEPTED}
    assert rows(path, "SELECT * FROM consent_group") == []
    assert client.ledger().groups == ()


def test_what_is_named_is_recorded_and_nothing_else(path):
    client = device(path, consent=False)
    assert client.group_consent == {"look": NEVER_GIVEN, "use": NEVER_GIVEN}
    assert client.give_consent(groups=["look"])
    assert client.group_consent == {"look": GIVEN, "use": NEVER_GIVEN}
    assert client.consent is GIVEN
    recorded = fill(client)
    assert {name for name in recorded if recorded[name] is Outcome.ACCEPTED} == {"colour", "late"}
    assert {recorded[name] for name in ("shape", "model", "app")} == {Outcome.NO_CONSENT}
    # Once more, from what is remembered of the refusal.
    assert client.record("shape", "a") is Outcome.NO_CONSENT
    assert str(client.ledger()).startswith(
        "You have agreed that randomized answers are sent to fleet.example. You agree to: look. "
        "You do not agree to: all others."
    )
    # Agreeing to more takes nothing away, at once and without again.
    assert client.give_consent(groups=iter(["use"]))
    assert client.record("shape", "a") is Outcome.ACCEPTED
    assert client.group_consent == {"look": GIVEN, "use": GIVEN}


def test_in_memory_too():
    from clientsdk import NO_LIFETIME_BOUND

    client = device(NO_LIFETIME_BOUND)
    for _ in range(2):
        assert client.record("colour", "a") is Outcome.ACCEPTED
        assert client.record("shape", "a") is Outcome.ACCEPTED
    assert client.withdraw_consent(groups=["use"])
    client.clock.advance(days=7)
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client.record("shape", "a") is Outcome.NO_CONSENT
    client.clock.advance(days=1)
    client.flush()
    assert metrics_sent(client) == {0}


def test_a_withdrawal_erases_the_group_and_nothing_else(path):
    client = device(path)
    fill(client)
    before = client.ledger()
    chains = {each.chain: each.metric for each in before.pending}
    assert client.withdraw_consent(groups=["use"])
    assert client.group_consent == {"look": GIVEN, "use": WITHDRAWN}
    after = client.ledger()
    assert {each.metric for each in after.pending} == {"trial/colour", "trial/late"}
    assert after.groups == (("*", NEVER_GIVEN), ("look", GIVEN), ("use", WITHDRAWN))
    # What was reserved stays, so that agreeing again gives nothing for free.
    assert after.reserved == before.reserved
    assert [each.held for each in after.permanent] == [False]
    assert rows(path, "SELECT cost FROM counting") == [(0,)]
    # No trace in the file or its log.
    content = raw(path)
    for chain, name in chains.items():
        assert (bytes.fromhex(chain) in content) is (name in ("trial/colour", "trial/late"))
    client.clock.advance(days=8)
    client.flush()
    client.clock.advance(days=14)
    client.flush()
    assert metrics_sent(client) == {0, 1}


def test_the_reservoir_of_a_group_is_erased_too(path):
    client = device(path)
    fill(client)
    assert client.withdraw_consent(groups=["look"])
    assert rows(path, "SELECT due, chain, cost FROM reservoir") == [(0, b"", 0)]
    assert {each.metric for each in client.ledger().pending} == {"trial/shape", "trial/model"}


def test_agreeing_again_in_the_same_period_gives_no_second_budget(path):
    client = device(path)
    for _ in range(2):
        fill(client)
    spent = client.ledger().reserved
    client.withdraw_consent(groups=["use"])
    assert client.give_consent(groups=["use"], again=True)
    assert client.record("shape", "a") is Outcome.PERIOD_FULL
    assert client.record("model", "a") is Outcome.PERIOD_FULL
    # A count that was lost is paid for again, as after a withdrawal of the whole.
    assert client.record("app", "a") is Outcome.ACCEPTED
    assert client.ledger().reserved == spent + METRIC_COST


METRIC_COST = grouped().metric("app").cost


def test_only_the_person_undoes_it(path, caplog):
    client = device(path)
    client.withdraw_consent(groups=["use"])
    for _ in range(2):
        # As at every start.
        assert not client.give_consent()
        assert not client.give_consent(groups=["use"])
    assert len([line for line in caplog.messages if "consent to some groups" in line]) == 1
    assert client.give_consent(groups=["look"])
    assert open_groups(client) == {"look"}
    client.close()
    client = device(path)
    assert client.group_consent["use"] is WITHDRAWN
    assert client.give_consent(again=True)
    assert client.group_consent == {"look": GIVEN, "use": GIVEN}
    assert open_groups(client) == {"look", "use"}
    assert not rollback_guard.group_noted(str(path))


def test_a_no_that_came_first_holds(path):
    client = device(path, consent=False)
    assert client.withdraw_consent(groups=["use"])
    assert client.consent is NEVER_GIVEN
    assert client.group_consent == {"look": NEVER_GIVEN, "use": WITHDRAWN}
    assert not client.give_consent()
    assert client.consent is GIVEN
    assert open_groups(client) == {"look"}


def test_after_a_withdrawal_of_the_whole_what_is_not_named_stays_withdrawn(path):
    client = device(path)
    client.withdraw_consent()
    assert not client.give_consent(groups=["look"])
    assert client.give_consent(groups=["look"], again=True)
    assert client.group_consent == {"look": GIVEN, "use": WITHDRAWN}
    assert not client.give_consent()
    assert open_groups(client) == {"look"}
    client.close()
    assert device(path).group_consent == {"look": GIVEN, "use": WITHDRAWN}


def test_what_was_agreed_to_before_a_withdrawal_of_the_whole_is_not_after(path):
    client = device(path, consent=False)
    client.give_consent(groups=["look"])
    client.withdraw_consent()
    assert client.give_consent(groups=["use"], again=True)
    assert client.group_consent == {"look": WITHDRAWN, "use": GIVEN}


def test_other_plans_of_the_collector_follow(path):
    """A group is the collector's, as consent is; a plan without groups is one of the others."""
    first = device(path, consent=False)
    first.give_consent(groups=["look"])
    bare = device(path, compiled=plan(metric("colour"), plan="bare"), consent=False)
    assert bare.record("colour", "a") is Outcome.NO_CONSENT
    other = device(
        path,
        compiled=grouped(metric("size", group="look"), plan="other", groups={"look": "Looks"}),
        consent=False,
    )
    assert other.record("size", "a") is Outcome.ACCEPTED
    # To agree to all of that plan is not to agree to what was not named of another.
    assert bare.give_consent()
    assert bare.record("colour", "a") is Outcome.ACCEPTED
    assert first.group_consent == {"look": GIVEN, "use": NEVER_GIVEN}
    assert first.ledger().groups == (("*", NEVER_GIVEN), ("bare/", GIVEN), ("look", GIVEN))
    assert first.withdraw_consent(groups=["look"])
    assert {each.metric for each in bare.ledger().pending} == {"bare/colour"}
    assert bare.record("colour", "a") is Outcome.PERIOD_FULL
    assert other.record("size", "a") is Outcome.NO_CONSENT


def test_another_name_for_a_group_is_no_yes(path):
    """Neither a version that calls it otherwise nor one without groups records what was refused."""
    with device(path) as client:
        client.withdraw_consent(groups=["use"])
    shape = metric("shape", group="used")
    renamed = grouped(shape, version=2, groups={"used": "What is used"})
    for compiled in (renamed, plan(metric("shape"), version=3)):
        client = device(path, compiled=compiled, consent=False)
        assert client.record("shape", "a") is Outcome.NO_CONSENT
        client.close()
    client = device(path, compiled=renamed, consent=False)
    assert client.group_consent == {"used": NEVER_GIVEN}
    # A person who is asked again may agree.
    assert client.give_consent(groups=["used"])
    assert client.record("shape", "a") is Outcome.ACCEPTED


def test_nor_is_a_yes_to_another_plan_that_has_no_groups(path):
    """Nor one that was given to an earlier version without groups."""
    bare = plan(metric("size"), plan="bare")
    ungrouped = plan(metric("shape", "every", 5), version=2, ceilings=CEILINGS)
    device(path, consent=False).give_consent(groups=["look"])
    assert device(path, compiled=bare, consent=False).give_consent()
    assert device(path, compiled=ungrouped, consent=False).record("shape", "a") is NO_CONSENT
    earlier = device(path, compiled=ungrouped, consent=False)
    assert earlier.give_consent()
    assert earlier.record("shape", "a") is Outcome.ACCEPTED
    device(path, consent=False).withdraw_consent(groups=["use"])
    assert earlier.ledger().pending == ()
    assert earlier.record("shape", "a") is NO_CONSENT
    assert device(path, compiled=bare, consent=False).record("size", "a") is Outcome.ACCEPTED


@pytest.mark.parametrize("group", ["used", None])
def test_giving_consent_at_every_start_is_no_yes_to_what_was_refused(path, caplog, group):
    """Under another name, or none, it is given only by name or again."""
    with device(path) as client:
        client.withdraw_consent(groups=["use"])
    changes = {"group": group} if group else {}
    groups = {"groups": {"look": "How it looks", "used": "What is used"}} if group else {}
    colour = metric("colour", "every", 2, **({"group": "look"} if group else {}))
    later = plan(colour, metric("shape", "every", 2, **changes), version=2, **groups)
    for _ in range(2):
        with device(path, compiled=later, consent=False) as client:
            assert not client.give_consent()
            assert client.record("shape", "a") is NO_CONSENT
            assert client.record("colour", "a") is (Outcome.ACCEPTED if group else NO_CONSENT)
    assert len([line for line in caplog.messages if "consent to some groups" in line]) == 1
    client = device(path, compiled=later, consent=False)
    assert client.give_consent(again=True)
    assert client.record("shape", "a") is Outcome.ACCEPTED
    assert client.give_consent()


def test_a_no_before_consent_leaves_no_yes_to_later_groups(path):
    with device(path, consent=False) as client:
        client.withdraw_consent(groups=["use"])
        client.give_consent()
    later = grouped(
        metric("colour", group="look"), metric("new", group="new"), version=2,
        groups={"look": "How it looks", "new": "What is new"},
    )  # fmt: skip
    client = device(path, compiled=later, consent=False)
    assert client.group_consent == {"look": GIVEN, "new": NEVER_GIVEN}


def test_what_an_earlier_version_recorded_without_a_group_goes_too(path):
    with device(path, compiled=plan(metric("shape"), metric("rest"), ceilings=CEILINGS)) as earlier:
        earlier.record("shape", "a")
        earlier.record("rest", "a")
    later = device(path, compiled=grouped(version=2))
    assert later.group_consent == {"look": GIVEN, "use": GIVEN}
    assert later.withdraw_consent(groups=["use"])
    assert {each.metric for each in later.ledger().pending} == {"trial/rest"}


def test_chains_of_a_plan_that_cannot_be_read_go_too(path):
    with device(path, compiled=plan(metric("shape"), ceilings=CEILINGS)) as earlier:
        earlier.record("shape", "a")
    later = device(path, compiled=grouped(version=2))
    later.record("colour", "a")
    alter(path, "UPDATE plan SET body = x'7b7d' WHERE id = 1")
    assert later.withdraw_consent(groups=["use"])
    assert rows(path, "SELECT DISTINCT plan FROM chain") == [(2,)]


def test_another_client_notices(path):
    here, there = device(path), device(path)
    fill(there)
    assert here.withdraw_consent(groups=["use"])
    assert there.group_consent == {"look": GIVEN, "use": WITHDRAWN}
    assert there.record("shape", "a") is Outcome.NO_CONSENT
    # The items that it was counting are lost with the claim to them.
    assert there.record("app", "a") is Outcome.NO_CONSENT
    there.clock.now = START + WEEK + DAY
    there.flush()
    assert 4 not in metrics_sent(there)
    assert here.give_consent(groups=["use"], again=True)
    assert open_groups(there) == {"look", "use"}


def test_of_what_was_counted_nothing_is_drawn(path):
    client = device(path)
    client.record("app", "a")
    client.withdraw_consent(groups=["use"])
    client.give_consent(again=True)
    client.clock.advance(days=8)
    client.flush()
    assert client.publisher.messages == []


def test_a_flush_under_way_hands_out_no_further_message(path, monkeypatch):
    monkeypatch.setattr("clientsdk.sending.sender.MAX_MESSAGE", 100)
    clients = []
    publisher = Calling(lambda: clients[0].withdraw_consent(groups=["use"]))
    clients.append(device(path, publisher=publisher))
    client = clients[0]
    fill(client)
    client.clock.advance(hours=3)
    assert client.flush().sent == 1
    publisher.after = lambda: None
    client.flush()
    # What was charged of the other group goes later, once each.
    found = reports(publisher.messages)
    assert {each.metric for each in found[1:]} <= {0, 1}
    assert len({(each.chain, each.level) for each in found}) == len(found)


@pytest.mark.real_randomness
def test_a_child_of_a_fork_notices(path):
    code = (
        FORK
        + """
GROUPS = {"look": "How it looks", "use": "What is used"}
METRICS = [metric("colour", "every", 9, group="look"), metric("shape", "every", 9, group="use")]
client = Device(plan(*METRICS, groups=GROUPS, ceilings=VAST), START, MemoryPublisher(), state=path)
client.give_consent()
client.record("shape", "a")
def no():
    assert client.withdraw_consent(groups=["use"])
    assert client.record("shape", "a") is Outcome.NO_CONSENT
    assert client.record("colour", "a") is Outcome.ACCEPTED
reap(fork(no))
assert client.group_consent == {"look": Consent.GIVEN, "use": Consent.WITHDRAWN}
assert client.record("shape", "a") is Outcome.NO_CONSENT
client.clock.advance(hours=3)
assert client.flush().sent == 1
print([each.metric for each in reports(client.publisher.messages)])
"""
    )
    for hooks in ("hooks", "no hooks"):
        place = path.with_name(f"{hooks}.db")
        assert run(code, place, hooks).split() == ["[0]"]


@pytest.mark.real_randomness
def test_another_process_that_sends_all_the_time_stops_at_once(path):
    """Of what was refused it hands out no message but one that it had at that moment."""
    code = (
        FORK
        + """
GROUPS = {"look": "How it looks", "use": "What is used"}
METRICS = [metric("colour", "every", 10**5, group="look", ladder=[(1000, 0)]),
           metric("shape", "every", 10**5, group="use", ladder=[(1000, 0)])]
PLAN = plan(*METRICS, groups=GROUPS, ceilings=VAST)
over, done = path.with_name("over"), path.with_name("done")

class Watching(MemoryPublisher):
    late = 0
    def publish(self, shard, message):
        late = over.exists()
        self.late += late and any(each.metric for each in reports([(shard, message)]))
        super().publish(shard, message)

def work():
    publisher = Watching()
    client = Device(PLAN, START, publisher, state=path)
    outcomes = set()
    rounds = 0
    while rounds < 20:
        rounds += over.exists()
        for _ in range(5):
            outcomes.add(client.record("colour", "a"))
            last = client.record("shape", "a")
        client.clock.advance(hours=3)
        assert client.flush().error is None
        done.touch()
    assert outcomes == {Outcome.ACCEPTED}, outcomes
    assert last is Outcome.NO_CONSENT
    assert publisher.late <= 1, publisher.late

client = Device(PLAN, START, MemoryPublisher(), state=path)
client.give_consent()
pid = fork(work)
while not done.exists():
    time.sleep(0.001)
assert client.withdraw_consent(groups=["use"]) in (True, False)
over.touch()
reap(pid)
assert client.group_consent == {"look": Consent.GIVEN, "use": Consent.WITHDRAWN}
assert "trial/shape" not in {each.metric for each in client.ledger().pending}
"""
    )
    run(code, path, "hooks")


def test_an_older_copy_put_back_does_not_undo_it(path):
    """It does not know of the no; the guard beside it does, though not of which group it was."""
    client = device(path)
    fill(client)
    client.close()
    copy = path.read_bytes()
    with device(path) as client:
        client.withdraw_consent(groups=["use"])
        client.flush()
    path.write_bytes(copy)
    client = device(path)
    assert client.consent is WITHDRAWN
    assert not client.give_consent()
    assert client.ledger().pending == ()
    assert fill(client).popitem()[1] is Outcome.NO_CONSENT


def test_nor_does_one_that_knows_of_another_group(path):
    with device(path) as client:
        client.withdraw_consent(groups=["look"])
    copy = path.read_bytes()
    with device(path) as client:
        client.withdraw_consent(groups=["use"])
    path.write_bytes(copy)
    assert device(path).consent is WITHDRAWN


@pytest.mark.parametrize("lose", [lambda path: path.unlink(), lambda path: path.write_bytes(b"x")])
def test_nor_does_a_lost_or_damaged_file(path, lose):
    with device(path) as client:
        client.withdraw_consent(groups=["use"])
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    lose(path)
    client = device(path)
    assert client.consent is WITHDRAWN
    assert not client.give_consent()


def test_a_guard_that_lost_its_note_gets_it_again(path):
    with device(path) as client:
        client.withdraw_consent(groups=["use"])
    guard = path.with_name(f"{path.name}-mark")
    guard.write_bytes(guard.read_bytes()[:384])
    assert not rollback_guard.group_noted(str(path))
    with device(path) as client:
        assert client.group_consent == {"look": GIVEN, "use": WITHDRAWN}
    assert rollback_guard.group_noted(str(path))


def test_the_note_is_forced_to_disk_before_the_withdrawal_is_written(path, monkeypatch):
    """Where ``fsync`` alone leaves it in the disk's cache, as on macOS, too."""
    client, forced = device(path), []

    def force(descriptor):
        said = rows(path, "SELECT * FROM consent_group")
        forced.append((rollback_guard.group_noted(str(path)), said))

    monkeypatch.setattr(rollback_guard, "force", force)
    assert client.withdraw_consent(groups=["use"])
    assert forced[0] == (True, [])


def test_both_files_moved_together_are_the_same_device(path, tmp_path):
    with device(path) as client:
        client.record("colour", "a")
        client.withdraw_consent(groups=["use"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in tmp_path.glob("device.db*"):
        shutil.copy(file, elsewhere)
    client = device(elsewhere / "device.db")
    assert client.group_consent == {"look": GIVEN, "use": WITHDRAWN}
    assert len(client.ledger().pending) == 1


@pytest.mark.parametrize("prefix", ["INSERT INTO consent_group", "DELETE FROM chain", "COMMIT"])
def test_where_it_cannot_be_written_all_is_withdrawn(path, prefix, caplog):
    client = device(path)
    fill(client)
    database = client._store.database
    sound = database.connection
    database.connection = Failing(sound, prefix)
    database.cursor, database._cursor_of = database.connection.cursor(), database.connection
    client.withdraw_consent(groups=["use"])
    database.connection = sound
    assert client.consent is WITHDRAWN
    assert any("could not be withdrawn alone" in line for line in caplog.messages)
    assert client.record("colour", "a") is Outcome.NO_CONSENT
    client.clock.advance(days=1)
    assert client.flush().sent == 0
    client.close()
    again = device(path)
    assert again.consent is WITHDRAWN
    assert again.ledger().pending == ()


INSTANTS = """
GROUPS = {"look": "How it looks", "use": "What is used"}
METRICS = [metric("colour", "every", 9, group="look"), metric("shape", "every", 9, group="use"),
           metric("model", "constant", ladder=CONSTANT, group="use")]
PLAN = plan(*METRICS, groups=GROUPS, ceilings=VAST)

def opened(state):
    return Device(PLAN, START, MemoryPublisher(), state=state)

def die_after(client, instant):
    # At the n-th statement, or the n-th change of the guard.
    import signal
    from clientsdk.store import rollback_guard
    left = [instant]
    def count(*_):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    client._store.database.connection.set_trace_callback(count)
    put = rollback_guard._put
    def counted_put(*arguments):
        count()
        put(*arguments)
    rollback_guard._put = counted_put

instant, seen = 0, set()
while True:
    state = path / str(instant) / "device.db"
    state.parent.mkdir(parents=True)
    with opened(state) as client:
        client.give_consent()
        for name in ("colour", "shape", "model"):
            client.record(name, "a")
    def one():
        client = opened(state)
        die_after(client, instant)
        WORK
    status = os.waitpid(child(one), 0)[1]
    client = opened(state)
    said, whole = client.group_consent, client.consent
    pending = {each.metric for each in client.ledger().pending}
    client.give_consent()
    accepted = client.record("shape", "b")
    if whole is Consent.WITHDRAWN:
        assert pending == set() and accepted is Outcome.NO_CONSENT, (instant, pending)
    elif said["use"] is Consent.WITHDRAWN:
        assert pending == {"trial/colour"} and accepted is Outcome.NO_CONSENT, (instant, pending)
    else:
        # Nothing of it was written.
        assert pending == {"trial/colour", "trial/shape", "trial/model"}, (instant, pending)
        assert status != 0
    seen.add((whole.value, said["use"].value))
    client.close()
    instant += 1
    if status == 0:
        break
print(instant, sorted(seen))
"""


@pytest.mark.real_randomness
@pytest.mark.slow
def test_killed_before_every_statement_and_change_of_the_guard(path):
    work = 'client.withdraw_consent(groups=["use"])'
    out = run(INSTANTS.replace("WORK", work), path.parent / "instants", timeout=900)
    count, _, seen = out.partition(" ")
    assert int(count) > 12  # every draw: each statement counts, whatever is drawn.
    # Before, in between, and after.
    assert eval(seen) == [  # noqa: S307
        ("given", "given"),
        ("given", "withdrawn"),
        ("withdrawn", "withdrawn"),
    ]


@pytest.mark.real_randomness
@pytest.mark.slow
def test_killed_while_it_is_given_again_it_stays_withdrawn_or_is_given(path):
    """Never given with chains from before, and never lost: from the commit on it is given."""
    work = """
        client.withdraw_consent(groups=["use"])
        print(end="")
        client.give_consent(groups=["use"], again=True)
"""
    code = INSTANTS.replace("        WORK\n", work).replace(
        INSTANTS[INSTANTS.index("        assert pending == {") : INSTANTS.index("    seen.add")],
        """        assert (pending == {"trial/colour"}) or status != 0, (instant, pending)
""",
    )
    out = run(code, path.parent / "instants", timeout=900)
    assert "('given', 'given')" in out


def test_switched_off_a_group_can_be_withdrawn(path):
    with device(path) as client:
        fill(client)
    off = device(path, settings=Settings(disabled=True))
    assert off.withdraw_consent(groups=["use"])
    with device(path) as client:
        assert client.group_consent == {"look": GIVEN, "use": WITHDRAWN}
        assert {each.metric for each in client.ledger().pending} == {"trial/colour", "trial/late"}


def test_switched_off_and_without_a_file_that_opens_all_is_withdrawn(path, monkeypatch):
    with device(path) as client:
        fill(client)
    off = device(path, settings=Settings(disabled=True))

    def refused(*arguments, **options):
        raise StoreError("no")

    with monkeypatch.context() as patch:
        patch.setattr("clientsdk.store.recovery.open_store", refused)
        assert not off.withdraw_consent(groups=["use"])
    assert device(path).consent is WITHDRAWN


def test_renewing_consent_keeps_to_groups(path):
    client = device(path, consent=False)
    client.give_consent(groups=["look"])
    assert client.renew_consent()
    assert client.group_consent == {"look": GIVEN, "use": NEVER_GIVEN}
    client.withdraw_consent(groups=["look"])
    assert client.renew_consent(again=True)
    assert client.group_consent == {"look": WITHDRAWN, "use": NEVER_GIVEN}
    client.withdraw_consent()
    assert not client.renew_consent()
    assert client.renew_consent(again=True)
    assert client.group_consent == {"look": GIVEN, "use": GIVEN}


def test_groups_that_are_none_are_refused(path):
    client = device(path)
    for call in (client.give_consent, client.withdraw_consent):
        with pytest.raises(ParameterError):
            call(groups=["looks"])
        with pytest.raises(ParameterError):
            call(groups="look")
        for wrong in ([1], 1, [["look"]]):
            with pytest.raises(ParameterError):
                call(groups=wrong)
    bare = device(path, compiled=plan(), consent=False)
    with pytest.raises(ParameterError):
        bare.give_consent(groups=["look"])
    assert bare.group_consent == {}


def test_no_groups_are_no_consent(path):
    client = device(path, consent=False)
    assert not client.give_consent(groups=[])
    assert client.consent is NEVER_GIVEN
    client.give_consent()
    assert client.withdraw_consent(groups=[])
    assert client.group_consent == {"look": GIVEN, "use": GIVEN}


def test_a_damaged_row_is_a_damaged_file(path):
    client = device(path)
    client.withdraw_consent(groups=["use"])
    alter(path, "UPDATE consent_group SET consent = 'perhaps'")
    assert client.record("colour", "a") is Outcome.STORE_FULL
    with pytest.raises(StoreError, match="damaged"):
        read_file(path)
