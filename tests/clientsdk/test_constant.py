"""Constant metrics: one permanent response for life, charged once, said again in each period."""

from __future__ import annotations

from collections import Counter

import pytest
from device_plans import (
    CONSTANT,
    DAY,
    LADDER,
    START,
    VAST,
    WEEK,
    alter,
    counted,
    metric,
    number,
    plan,
    raw,
    reports,
    string,
)
from statistical import check_counts

from clientsdk import Outcome
from clientsdk.ledger import PermanentCharge
from clientsdk.store import permanent
from clientsdk.store.database import TransactionAccess
from clientsdk.testing import FakeClock, SeededClient
from sotto.plan.compiled import Ceilings


def constant(name="model", **changes):
    return metric(name, "constant", ladder=changes.pop("ladder", CONSTANT), **changes)


def word():
    """A string of one cohort: what the response is drawn under must not change."""
    document = string("word", kind="constant", ladder=[(2_000_000, 0), (4_000_000, 0)])
    return {**document, "mechanism": {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 1}}


def device(*metrics, seed=1, **options):
    options.setdefault("clock", FakeClock(START))
    changes = {"ceilings": VAST, **options.pop("plan", {})}
    return SeededClient(plan(*metrics or (constant(),), **changes), seed=seed, **options)


def weeks(client, number, value="a", name="model"):
    """Record in each of so many periods, and send everything."""
    outcomes = []
    for _ in range(number):
        outcomes.append(client.record(name, value))
        client.clock.advance(days=3)
        assert client.flush().error is None
        client.clock.advance(days=4)
    return outcomes


def certified(client, level, name="model"):
    return client.plan.metric(name).mechanism.certified(level)


def held(client):
    with client._store.transaction(TransactionAccess.READ) as connection:
        return [bytes(row[0]) for row in connection.execute("SELECT response FROM permanent")]


def test_a_report_for_each_period_in_which_something_is_recorded():
    client = device()
    assert weeks(client, 2) == [Outcome.ACCEPTED] * 2
    client.clock.advance(days=21)
    assert client.next_due() is None
    assert weeks(client, 2) == [Outcome.ACCEPTED] * 2
    sent = reports(client.publisher.messages)
    assert len({report.pseudonym for report in sent}) == 4
    assert len({report.chain for report in sent}) == 4
    assert {(report.event - START) // WEEK for report in sent} == {0, 1, 5, 6}
    assert client.ledger().pending == ()


def test_once_a_period_and_only_the_levels_below_the_permanent_response():
    client = device()
    for _ in range(3):
        assert client.record("model", "a") is Outcome.ACCEPTED
        assert client.record("model", "a") is Outcome.PERIOD_FULL
        (chain,) = client.ledger().pending
        assert (chain.levels, chain.reserved) == (2, certified(client, 1))
        for _ in range(7):
            client.clock.advance(days=1)
            client.flush()
    assert Counter(report.level for report in reports(client.publisher.messages)) == {0: 3, 1: 3}


def test_the_lifetime_is_charged_once_and_each_period_for_what_it_sends():
    client = device()
    weeks(client, 5)
    ledger = client.ledger()
    assert {(p.reserved, p.spent) for p in ledger.periods} == {(certified(client, 1),) * 2}
    assert all(p.degraded_reserved == p.reserved for p in ledger.periods)
    assert all(p.degraded_spent == p.spent for p in ledger.periods)
    assert ledger.reserved == ledger.spent == certified(client, 2)
    assert ledger.permanent == (PermanentCharge("trial/model", certified(client, 2), True),)
    totals = counted(reports(client.publisher.messages), [client.plan])
    assert sorted(totals.values()) == [period.spent for period in ledger.periods]


def test_a_lifetime_that_pays_for_the_response_pays_for_all_periods():
    client = device(ceilings=Ceilings(2_000_000, 2_000_000))
    assert weeks(client, 12) == [Outcome.ACCEPTED] * 12
    assert len({report.chain for report in reports(client.publisher.messages)}) == 12
    assert client.ledger().reserved <= 2_000_000


def test_it_counts_beside_other_metrics_in_period_and_lifetime():
    client = device(constant(), metric("colour"), ceilings=Ceilings(3_000_000, 6_000_000))
    outcomes = []
    for _ in range(3):
        outcomes.append((client.record("model", "a"), client.record("colour", "a")))
        client.clock.advance(days=7)
    assert outcomes == [
        (Outcome.ACCEPTED, Outcome.ACCEPTED),
        (Outcome.ACCEPTED, Outcome.ACCEPTED),
        # Two periods of colour and the permanent response are a lifetime.
        (Outcome.ACCEPTED, Outcome.OVER_BUDGET),
    ]
    ledger = client.ledger()
    assert ledger.reserved == certified(client, 2) + 2 * certified(client, 2, "colour")


def test_what_a_ceiling_forbids_draws_nothing():
    client = device(constant("one"), constant("two"), ceilings=Ceilings(3_000_000, 3_000_000))
    assert client.record("one", "a") is Outcome.ACCEPTED
    assert client.record("two", "a") is Outcome.OVER_BUDGET
    assert [charge.metric for charge in client.ledger().permanent] == ["trial/one"]
    client = device(metric("colour"), constant(), ceilings=Ceilings(2_500_000, 10**8))
    assert client.record("colour", "a") is Outcome.ACCEPTED
    assert client.record("model", "a") is Outcome.OVER_BUDGET
    assert client.ledger().permanent == ()
    client.clock.advance(days=7)
    assert client.record("model", "a") is Outcome.ACCEPTED


def test_later_values_change_nothing():
    """The same seed and the same first value: the same bytes, whatever comes later."""

    def life(values):
        client = device(seed=9)
        outcomes = []
        for value in values:
            outcomes += [client.record("model", value) for _ in range(2)]
            client.clock.advance(days=3)
            client.flush()
            client.clock.advance(days=4)
        return outcomes, client.publisher.messages, client.ledger()

    assert life(["a"] * 8) == life(["a", "b", "c", "nowhere", "b", "", "c", "b"])


# What the response is bound to.


def test_another_version_goes_on_with_the_response(path):
    with device(state=path) as client:
        weeks(client, 2)
        (response,) = held(client)
        ledger = client.ledger()
    for version, changes in enumerate(
        ({}, {"window": 8 * WEEK}, {"ladder": [(e, after + DAY) for e, after in CONSTANT]}), start=2
    ):
        with device(
            metric("colour"), constant(**changes), state=path, seed=version,
            clock=client.clock, plan={"version": version},
        ) as client:  # fmt: skip
            weeks(client, 2)
            assert held(client) == [response]
            assert client.ledger().permanent == ledger.permanent


CHANGES = {
    "ladder": (constant(ladder=[(500_000, 0), (1_000_000, DAY), (3_000_000, DAY)]), {}),
    "weaker rung": (constant(ladder=[(400_000, 0), (1_000_000, DAY), (2_000_000, DAY)]), {}),
    "mechanism": (constant(mechanism={"name": "sue", "domain_size": 4}), {}),
    "domain": (constant(domain=["a", "b", "d"]), {}),
    "outside": (constant(domain=["a", "b", "c", "d"], outside="d"), {}),
    "metric": (constant("other"), {}),
    "plan": (constant(), {"plan": "another"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_mechanism_meaning_or_name_needs_another_response_and_pays_for_it(path, what):
    changed, changes = CHANGES[what]
    with device(state=path) as client:
        weeks(client, 1)
        first = certified(client, 2)
    name = changed["name"]
    client = device(changed, state=path, clock=client.clock, plan={"version": 2, **changes})
    assert weeks(client, 2, name=name) == [Outcome.ACCEPTED] * 2
    assert client.ledger().reserved == first + certified(client, 2, name)
    assert len(held(client)) == 2
    with device(state=path, clock=client.clock) as client:
        # The first plan again, with the response that it had.
        weeks(client, 1)
        assert len(held(client)) == 2


def test_a_new_response_is_refused_where_the_lifetime_does_not_pay_for_it(path):
    ceilings = Ceilings(3_000_000, 3_000_000)
    with device(state=path, ceilings=ceilings) as client:
        weeks(client, 1)
    strong = constant(ladder=[(500_000, 0), (1_000_000, DAY), (2_500_000, DAY)])
    client = device(strong, state=path, clock=client.clock, plan={"version": 2})
    assert client.record("model", "a") is Outcome.OVER_BUDGET
    client.clock.advance(days=7)
    assert client.record("model", "a") is Outcome.OVER_BUDGET
    assert len(client.ledger().permanent) == 1


def test_two_versions_share_the_period(path):
    client = device(state=path)
    assert client.record("model", "a") is Outcome.ACCEPTED
    other = device(constant(domain=["x", "y", "z"]), state=path, plan={"version": 2})
    assert other.record("model", "x") is Outcome.PERIOD_FULL
    assert len(other.ledger().permanent) == 1


def test_a_binding_is_that_of_the_plan_s_json():
    compiled = plan(constant(), number("size"), ceilings=VAST)
    bindings = [permanent.binding_of(compiled, each) for each in compiled.metrics]
    assert len(set(bindings)) == 2
    assert {len(binding) for binding in bindings} == {32}
    again = plan(number("size"), constant(), ceilings=VAST, version=5, owner="someone else")
    assert permanent.binding_of(again, again.metric("model")) == bindings[0]


# Withdrawal.


def test_a_withdrawal_wipes_the_response_from_every_byte_and_keeps_its_charge(path):
    client = device(word(), state=path)
    weeks(client, 2, "a word", "word")
    client.record("word", "a word")
    (response,) = held(client)
    assert len(response) == 16
    assert response in raw(path)
    before = client.ledger()
    assert client.withdraw_consent()
    assert response not in raw(path)
    assert held(client) == [b""]
    after = client.ledger()
    assert (after.reserved, after.spent) == (before.reserved, before.spent)
    assert [charge.held for charge in after.permanent] == [False]


def test_after_consent_is_given_again_a_new_response_costs_again():
    client = device(word())
    for life in range(1, 4):
        assert weeks(client, 2, "a word", "word") == [Outcome.ACCEPTED] * 2
        assert client.ledger().reserved == life * certified(client, 1, "word")
        client.withdraw_consent()
        client.give_consent(again=True)
        client.clock.advance(days=7)
    (charge,) = client.ledger().permanent
    assert charge == PermanentCharge("trial/word", 3 * certified(client, 1, "word"), False)


def test_after_a_withdrawal_the_lifetime_s_ceiling_decides():
    client = device(ceilings=Ceilings(3_000_000, 3_000_000))
    weeks(client, 1)
    client.withdraw_consent()
    client.give_consent(again=True)
    assert weeks(client, 2) == [Outcome.OVER_BUDGET] * 2
    assert client.ledger().reserved == certified(client, 2)
    client.renew_consent(Ceilings(4_000_000, 4_000_000))
    assert weeks(client, 2) == [Outcome.ACCEPTED] * 2


def test_the_period_of_a_withdrawal_has_had_its_report():
    client = device()
    client.record("model", "a")
    client.withdraw_consent()
    client.give_consent(again=True)
    assert client.record("model", "a") is Outcome.PERIOD_FULL


def test_agreeing_to_other_ceilings_keeps_the_response():
    client = device()
    weeks(client, 1)
    (response,) = held(client)
    client.renew_consent(Ceilings(10**8, 10**9))
    weeks(client, 1)
    assert held(client) == [response]


def test_ceilings_lowered_below_what_the_response_cost_stop_its_reports(path):
    client = device(state=path)
    client.record("model", "a")
    low = Ceilings(1_500_000, 1_500_000)
    client = device(state=path, seed=2, clock=client.clock, ceilings=low)
    client.clock.advance(days=2)
    result = client.flush()
    assert (result.sent, result.lapsed) == (0, 1)
    client.clock.advance(days=7)
    assert client.record("model", "a") is Outcome.OVER_BUDGET
    assert client.publisher.messages == []


# The law of what is sent.


def pairs(devices, seed):
    """The strongest levels sent in two periods, of devices whose value is the first symbol."""
    seen = Counter()
    ladder = [(1_500_000, 0), (2_500_000, 0)]
    compiled = plan(
        constant(ladder=ladder, domain=["a", "b"], mechanism={"name": "grr", "domain_size": 3}),
        ceilings=VAST,
    )
    for each in range(devices):
        client = SeededClient(compiled, seed=seed + each, clock=FakeClock(START))
        client.record("model", "a")
        client.clock.advance(days=7)
        client.record("model", "b")
        client.clock.advance(days=7)
        with client._store.transaction(TransactionAccess.READ) as connection:
            rows = connection.execute("SELECT payloads FROM chain ORDER BY period").fetchall()
        seen[tuple(payload[0] for (payload,) in rows)] += 1
        client.close()
    return seen, compiled.metrics[0].mechanism.chain


def law(chain):
    """The exact joint law of two periods, each drawn from one permanent response."""
    size, strongest, (step,) = chain.size, chain.strongest.pair, chain.steps

    def moved(rung, start, end):
        return rung.p if start == end else rung.q

    return {
        (one, two): sum(
            moved(strongest, 0, kept) * moved(step.pair, kept, one) * moved(step.pair, kept, two)
            for kept in range(size)
        )
        for one in range(size)
        for two in range(size)
    }


@pytest.mark.slow
def test_periods_are_degradations_of_one_response():
    seed = 70_000
    seen, chain = pairs(1200, seed)
    exact = law(chain)
    check_counts([seen[pair] for pair in exact], list(exact.values()), label=seed)


@pytest.mark.slow
def test_responses_drawn_anew_would_be_seen(monkeypatch):
    """The planted fault: every period draws a response of its own."""
    monkeypatch.setattr(permanent, "response", lambda connection, binding: None)
    monkeypatch.setattr(permanent, "keep", lambda *given: None)
    seen, chain = pairs(1200, 70_000)
    exact = law(chain)
    with pytest.raises(AssertionError):
        check_counts([seen[pair] for pair in exact], list(exact.values()), label=70_000)


# Damaged files.


def test_a_permanent_response_that_is_none_of_the_mechanism_is_not_used(path):
    client = device(state=path)
    weeks(client, 1)
    alter(path, "UPDATE permanent SET response = x'ffff'")
    before = client.ledger()
    assert client.record("model", "a") is Outcome.STORE_FULL
    assert client.ledger() == before


def test_a_ladder_of_two_levels_and_one_that_is_sent_at_once():
    client = device(constant(ladder=[(1_000_000, 0), (LADDER[-1][0], 0)]))
    weeks(client, 1)
    (report,) = reports(client.publisher.messages)
    assert report.level == 0
    assert client.ledger().pending == ()


def test_other_words_about_a_metric_need_no_other_response(path):
    """Nor does another group: a second response would cost the lifetime a second time."""
    groups = {"all": "Everything", "some": "Some of it"}
    worded = {"description": "The model", "purpose": "To know", "data_type": "device"}
    first = plan(metric("model", "constant", ladder=CONSTANT))
    second = plan(
        metric("model", "constant", ladder=CONSTANT, group="all", **worded),
        metric("colour", group="some"),
        groups=groups,
        version=2,
    )
    assert permanent.binding_of(first, first.metrics[0]) == permanent.binding_of(
        second, second.metrics[0]
    )
