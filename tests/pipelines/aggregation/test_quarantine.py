"""Quarantine keeps what was rejected, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_logs import START, honest
from step_plans import registry

from pipelines.aggregation import quarantine
from pipelines.aggregation.decode import rows_of
from pipelines.aggregation.quarantine import Rejects
from sotto.errors import FormatError
from sotto.wire.decode import Reject, decode
from sotto.wire.reasons import Reason

rejects = st.lists(
    st.builds(
        Reject,
        st.sampled_from(Reason),
        st.binary(max_size=20),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**32 - 1),
    ),
    max_size=6,
)


@given(rejects, rejects)
def test_what_is_packed_comes_back_in_one_order(one, other):
    packed = quarantine.pack(one) + quarantine.pack(other)
    assert list(quarantine.unpack(packed)) == one + other
    combined = quarantine.combine([quarantine.pack(one), quarantine.pack(other)])
    assert combined == quarantine.combine([quarantine.pack(other + one)])
    assert sorted(quarantine.unpack(combined)) == sorted(one + other)


@given(rejects, st.data())
def test_a_cut_is_noticed(one, data):
    packed = quarantine.pack(one)
    ends = {len(quarantine.pack(one[:number])) for number in range(len(one) + 1)}
    at = data.draw(
        st.integers(0, len(packed)).filter(lambda at: at not in ends) if one else st.none()
    )
    if at is not None:
        with pytest.raises(FormatError, match="cut short"):
            list(quarantine.unpack(packed[:at]))


def test_reports_are_counted_and_what_is_none_counts_as_one():
    some = [
        Reject(Reason.LATE, b"", 1, 3),
        Reject(Reason.LATE, b"", 2, 1),
        Reject(Reason.MALFORMED, b"", 2),
    ]
    assert quarantine.numbers(some) == {"late": 4, "malformed": 1}


def test_rejected_rows_are_messages_as_they_could_have_come():
    """Decoded again, they are the rows that were rejected, each with its reason and time."""
    everything = [sent.message for sent in honest(6, 1, seed=5)]
    buffer = b"".join(everything)
    lengths = np.array([len(message) for message in everything])
    append = np.full(len(everything), START + 4 * 24 * 3_600_000)
    decoded = decode(buffer, np.cumsum(lengths) - lengths, lengths, append, registry())
    for rows in rows_of(decoded.batches, registry()):
        reasons = np.full(len(rows), Reason.OVER_BUDGET, dtype=np.uint8)
        found = quarantine.rejected(Rejects(rows, reasons), registry())
        assert {reject.message for reject in found} <= set(everything)
        assert len(found) == len(rows)
        assert {(r.reason, r.append, r.rows) for r in found} == {
            (Reason.OVER_BUDGET, int(append[0]), 1)
        }
