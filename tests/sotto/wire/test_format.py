"""The report format: round trips, and whatever else may come."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sotto.errors import FormatError
from sotto.wire.format import (
    MAX_MESSAGE,
    Group,
    Message,
    Row,
    decode_message,
    encode_message,
    pseudonym_of,
)

ids = st.binary(min_size=16, max_size=16)


@st.composite
def messages(draw):
    found = []
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.integers(0, 20))
        row = st.builds(
            Row,
            st.integers(0, 255),
            ids,
            ids,
            st.integers(-(2**63), 2**63 - 1),
            st.binary(min_size=width, max_size=width),
        )
        rows = draw(st.lists(row, min_size=1, max_size=4))
        found.append(Group(draw(st.integers(0, 65535)), tuple(rows)))
    fingerprint = draw(st.binary(min_size=32, max_size=32))
    cell = draw(st.integers(0, 255))
    return Message(fingerprint, draw(st.integers(0, 65535)), tuple(found), cell)


@given(messages())
def test_what_is_encoded_is_decoded(message):
    assert decode_message(encode_message(*message[:3], cell=message.cell)) == message


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.binary(max_size=160).map(lambda rest: b"SO\1\0" + rest))
def test_anything_is_decoded_or_refused(data):
    try:
        message = decode_message(data)
    except FormatError:
        return
    assert encode_message(*message) == data


ROW = Row(0, bytes(16), bytes(16), 0, b"\0")


@pytest.mark.parametrize(
    ("fingerprint", "shard", "runs"),
    [
        (bytes(31), 0, [(0, [ROW])]),
        (bytes(32), 65536, [(0, [ROW])]),
        (bytes(32), -1, [(0, [ROW])]),
        (bytes(32), 0, []),
        (bytes(32), 0, [(0, [])]),
        (bytes(32), 0, [(65536, [ROW])]),
        (bytes(32), 0, [(0, [ROW._replace(level=256)])]),
        (bytes(32), 0, [(0, [ROW._replace(pseudonym=bytes(15))])]),
        (bytes(32), 0, [(0, [ROW._replace(chain=bytes(17))])]),
        (bytes(32), 0, [(0, [ROW._replace(event=2**63)])]),
        (bytes(32), 0, [(0, [ROW, ROW._replace(payload=b"\0\0")])]),
        (bytes(32), 0, [(0, [ROW._replace(payload=bytes(65536))])]),
        (bytes(32), 0, [(0, [ROW._replace(payload=bytes(60_000))] * 18)]),
    ],
)
def test_what_does_not_fit_is_refused(fingerprint, shard, runs):
    with pytest.raises(FormatError):
        encode_message(fingerprint, shard, runs)


def test_a_message_may_be_as_long_as_allowed_and_no_longer():
    rows = [ROW] * ((MAX_MESSAGE - 48) // 42)
    message = encode_message(bytes(32), 0, [(0, rows)])
    assert len(decode_message(message).groups[0].rows) == len(rows)
    with pytest.raises(FormatError, match="at most"):
        encode_message(bytes(32), 0, [(0, [*rows, ROW])])
    with pytest.raises(FormatError, match="at most"):
        decode_message(message + bytes(42))


def test_a_huge_count_is_no_work():
    header = encode_message(bytes(32), 0, [(0, [ROW])])[:44]
    with pytest.raises(FormatError, match="within a group"):
        decode_message(header + b"\xff\xff\xff\xff" + bytes(42))


def outcome(call, data):
    """The value that a function returns, or the text with which it refuses."""
    try:
        return call(data)
    except FormatError as error:
        return str(error)


def pseudonym_decoded(data):
    found = {row.pseudonym for run in decode_message(data).groups for row in run.rows}
    if len(found) != 1:
        raise FormatError(f"a device's message bears one pseudonym, not {len(found)}")
    return found.pop()


@given(messages(), ids, st.booleans(), st.integers(0, 400), st.binary(max_size=3))
def test_the_pseudonym_of_a_message_is_that_of_all_its_rows(message, one, same, cut, more):
    """Messages are whole, cut or prolonged; those are refused that decoding refuses."""
    runs = [
        (run.metric, [row._replace(pseudonym=one) if same else row for row in run.rows])
        for run in message.groups
    ]
    whole = encode_message(message.fingerprint, message.shard, runs)
    for data in (whole, whole[:cut], whole + more):
        assert outcome(pseudonym_of, data) == outcome(pseudonym_decoded, data)
    if same:
        assert pseudonym_of(whole) == one
