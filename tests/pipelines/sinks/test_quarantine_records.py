"""Records of the quarantine topic, and of the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sinks.quarantine import (
    CURABLE,
    Record,
    is_curable,
    parse,
    plan_of,
    quarantine_record,
    requeue_record,
)
from sotto.errors import FormatError
from sotto.wire.decode import Reject
from sotto.wire.format import HEADER, MAX_MESSAGE
from sotto.wire.reasons import Reason

rejects = st.builds(
    Reject,
    st.sampled_from(Reason),
    st.binary(max_size=60),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**32 - 1),
)


@given(rejects, st.none() | st.binary(min_size=1, max_size=20))
def test_a_record_says_all_of_a_reject(reject, key):
    record = quarantine_record(reject, "job", key)
    entry = parse(record.key, record.value, record.headers)
    assert (entry.reject, entry.job, entry.length) == (reject, "job", len(reject.message))
    assert entry.key == record.key == (key or quarantine_record(reject, "other").key)


@given(rejects, rejects)
def test_different_rejects_have_different_keys(one, other):
    same = quarantine_record(one, "job").key == quarantine_record(other, "job").key
    assert same == (one == other)


def test_a_long_message_is_cut_and_its_length_told():
    record = quarantine_record(Reject(Reason.CORRUPT_LOG, bytes(MAX_MESSAGE + 9), 5), "job")
    entry = parse(record.key, record.value, record.headers)
    assert (len(record.value), entry.length) == (MAX_MESSAGE, MAX_MESSAGE + 9)


@pytest.mark.parametrize("reason", Reason)
def test_only_what_can_be_cured_comes_back(reason):
    record = quarantine_record(Reject(reason, b"message", 7, 1), "job", b"1.2")
    entry = parse(record.key, record.value, record.headers)
    if reason not in CURABLE:
        with pytest.raises(FormatError, match="cannot be requeued"):
            requeue_record(entry)
        return
    headers = (("reason", reason.label.encode()), ("job", b"job"))
    assert requeue_record(entry) == Record(b"1.2", b"message", headers, 7)


def test_a_record_may_count_once_the_clock_has_reached_it():
    ahead = Reject(Reason.FUTURE, b"message", 7)
    assert [is_curable(ahead, CURABLE, now) for now in (6, 7)] == [False, True]
    assert not is_curable(ahead, [Reason.UNKNOWN_PLAN], 7)
    assert not is_curable(ahead._replace(rows=1), CURABLE, 7)


@pytest.mark.parametrize("append", [-1, 1 << 62])
def test_a_time_that_a_broker_does_not_take_stays(append):
    record = quarantine_record(Reject(Reason.UNKNOWN_PLAN, b"message", append, 1), "job")
    with pytest.raises(FormatError, match="1970"):
        requeue_record(parse(record.key, record.value, record.headers))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reason": b"whim"}, "no record"),
        ({"append": b"soon"}, "no record"),
        ({"append": b"9" * 20}, "no record"),
        ({"rows": b"\xff"}, "no record"),
        ({"rows": b"-1"}, "no record"),
        ({"rows": None}, "no record"),
        ({"length": b""}, "no record"),
        ({"sotto-quarantine": b"2"}, "schema 2"),
    ],
)
def test_what_is_no_record_or_of_another_schema_is_refused(change, said):
    record = quarantine_record(Reject(Reason.LATE, b"message", 5, 1), "job")
    headers = {**dict(record.headers), **change}.items()
    with pytest.raises(FormatError, match=said):
        parse(record.key, record.value, headers)  # type: ignore[arg-type]


def test_the_plan_of_a_message_is_read_where_its_version_is_known():
    plan = bytes(range(32))
    assert plan_of(HEADER.pack(b"SO", 1, 0, 3, 1, plan) + b"rest") == plan
    # A signed one.
    assert plan_of(HEADER.pack(b"SO", 2, 0, 3, 1, plan) + b"rest") == plan
    assert plan_of(HEADER.pack(b"SO", 3, 0, 3, 1, plan)) is None
    assert plan_of(HEADER.pack(b"SO", 1, 63, 3, 1, plan)) == plan
    assert plan_of(HEADER.pack(b"NO", 1, 0, 3, 1, plan)) is None
    assert plan_of(b"SO") is None
