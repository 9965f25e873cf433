"""Binary HTTP: the RFC's examples, and bytes that are something else."""

from __future__ import annotations

import random

import pytest
from oblivious import known, prefixed, varint

from clientsdk.publishers.ohttp import Response, decode_response, encode_request
from sotto.errors import FormatError


def test_a_request_is_control_data_fields_content_and_padding():
    fields = [("content-type", "text/plain"), ("authorization", "Bearer k")]
    request = encode_request("POST", "https", "example.com", "/path", fields, b"content")
    section = prefixed(b"content-type", b"text/plain", b"authorization", b"Bearer k")
    control = prefixed(b"POST", b"https", b"example.com", b"/path")
    expected = b"\0" + control + prefixed(section, b"content") + b"\0"
    assert request == expected.ljust(1024, b"\0")


@pytest.mark.parametrize(
    ("content", "length"),
    [
        (0, 1024),
        (1, 1024),
        (978, 1024),
        (979, 2048),
        (2002, 2048),
        (2003, 4096),
        (1 << 20, 1 << 21),
    ],
)
def test_the_length_of_a_request_is_a_power_of_two(content, length):
    request = encode_request(
        "POST", "https", "telemetry.example", "/v1/reports", [], b"\xff" * content
    )
    assert len(request) == length
    assert b"\xff" * content in request


def test_answers_of_the_rfc():
    """RFC 9458, appendix A; and RFC 9292, section 5.2 in both lengths, with informational ones."""
    assert decode_response(bytes.fromhex("0140c8")) == Response(200, {}, b"")
    running = prefixed(b"running", b'"sleep 15"')
    hint = prefixed(b"link", b"</style.css>")
    fields = prefixed(b"date", b"Mon, 27 Jul 2009", b"server", b"Apache")
    final = Response(200, {"date": "Mon, 27 Jul 2009", "server": "Apache"}, b"Hello World!\r\n")
    of_known_length = (
        b"\1" + varint(102) + prefixed(running) + varint(103) + prefixed(hint)
        + varint(200) + prefixed(fields, b"Hello World!\r\n", b"")
    )  # fmt: skip
    assert decode_response(of_known_length) == final
    of_indeterminate_length = (
        b"\3" + varint(102) + running + b"\0" + varint(103) + hint + b"\0"
        + varint(200) + fields + b"\0" + prefixed(b"Hello ", b"World!\r\n") + b"\0"
        + prefixed(b"trailer", b"text") + b"\0"
    )  # fmt: skip
    assert decode_response(of_indeterminate_length) == final
    assert decode_response(of_indeterminate_length + bytes(100)) == final


def test_what_is_empty_at_the_end_may_be_left_out():
    fields = prefixed(b"retry-after", b"5")
    answer = Response(503, {"retry-after": "5"}, b"")
    for end in ("", "00", "0000", "000000"):
        assert (
            decode_response(b"\1" + varint(503) + prefixed(fields) + bytes.fromhex(end)) == answer
        )
        assert decode_response(b"\3" + varint(503) + fields + b"\0" + bytes.fromhex(end)) == answer


def test_names_of_fields_have_no_case_and_values_no_space_around():
    answer = decode_response(known(429, b"Retry-After", b" 7\t"))
    assert answer.fields == {"retry-after": "7"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" + varint(200),
        b"\2" + varint(200),
        b"\x40",
        b"\1" + varint(600),
        b"\1\x3f",
        b"\1" + varint(200) + b"\5abc",
        b"\1" + varint(200) + b"\xff" + b"\xff" * 7,
        b"\1" + varint(200) + prefixed(prefixed(b"", b"value")),
        b"\1" + varint(200) + prefixed(prefixed(b"name")),
        b"\1" + varint(200) + prefixed(prefixed(b"name") + b"\x09value"),
        b"\1" + varint(200) + b"\0\0\0\0padding",
        b"\1" + varint(102),
        b"\3" + varint(200) + prefixed(b"name", b"value"),
        b"\3" + varint(200) + b"\0" + prefixed(b"content"),
    ],
)
def test_other_bytes_are_refused(data):
    with pytest.raises(FormatError):
        decode_response(data)


def test_damaged_answers_are_read_or_refused():
    """No other error, whatever comes."""
    source = random.Random(1)
    whole = known(503, b"retry-after", b"120", content=b"a problem")
    refused = 0
    for _ in range(5000):
        data = bytearray(whole[: source.randrange(len(whole) + 1)])
        for _ in range(source.randrange(4)):
            if data:
                data[source.randrange(len(data))] = source.randrange(256)
        try:
            decode_response(bytes(data))
        except FormatError:
            refused += 1
    assert 0 < refused < 5000
