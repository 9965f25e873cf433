"""Requests and answers of HTTP as bytes: Binary HTTP (RFC 9292), as far as a publisher needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sotto.errors import FormatError

_REQUEST, _RESPONSE, _CHUNKED_RESPONSE = 0, 1, 3
_INFORMATIONAL = range(100, 200)
_FINAL = range(200, 600)
#: The least length of a request; longer ones have the next power of two.
LEAST = 1024


class Response(NamedTuple):
    """A final answer: status, header fields by lower-case name, content."""

    status: int
    fields: dict[str, str]
    content: bytes


def encode_request(
    scheme: str, authority: str, path: str, fields: Iterable[tuple[str, str]], content: bytes
) -> bytes:
    """Return a POST of known length, padded to a power of two, at least ``LEAST`` bytes.

    Examples
    --------
    >>> request = encode_request("https", "telemetry.example", "/v1/reports", [], b"message")
    >>> len(request), request.rstrip(bytes(1)).endswith(b"message")
    (1024, True)
    """
    control = (b"POST", scheme.encode(), authority.encode(), path.encode())
    section = b"".join(
        _prefixed(name.encode()) + _prefixed(value.encode()) for name, value in fields
    )
    parts = [_varint(_REQUEST), *map(_prefixed, control), _prefixed(section), _prefixed(content)]
    # No trailers, then padding: zeros, too.
    request = b"".join(parts) + _varint(0)
    return request.ljust(max(LEAST, 1 << (len(request) - 1).bit_length()), b"\0")


def decode_response(data: bytes) -> Response:
    """Return the final answer that ``data`` holds, of known or indeterminate length.

    Raises
    ------
    FormatError
        The bytes are something else.
    """
    reader = _Reader(data)
    framing = reader.varint()
    if framing not in (_RESPONSE, _CHUNKED_RESPONSE):
        raise FormatError(f"a binary HTTP response has framing 1 or 3, not {framing}")
    known = framing == _RESPONSE
    while (status := reader.varint()) in _INFORMATIONAL:
        # An informational answer always has its fields.
        reader.fields(known)
    if status not in _FINAL:
        raise FormatError(f"status {status} is none of a final answer")
    # What is empty at the end may be left out, with all that follows it.
    fields = reader.fields(known) if reader.more else {}
    content = b"".join(reader.chunks(known)) if reader.more else b""
    if reader.more:
        reader.fields(known)
    reader.padding()
    return Response(status, fields, content)


class _Reader:
    """Reads parts from bytes, and never beyond their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        """Whether there is anything left to read."""
        return self._at < len(self._data)

    def varint(self) -> int:
        """Return a number of 1, 2, 4 or 8 bytes (RFC 9000, section 16)."""
        first = self._bytes(1)[0]
        rest = self._bytes((1 << (first >> 6)) - 1)
        return int.from_bytes(bytes([first & 0x3F]) + rest, "big")

    def prefixed(self) -> bytes:
        """Return bytes that follow their length."""
        return self._bytes(self.varint())

    def fields(self, known: bool) -> dict[str, str]:
        """Return a section of fields; the last of several with one name counts."""
        found = {}
        for name, value in _Reader(self.prefixed()).pairs() if known else self._pairs_until_zero():
            found[name.decode("latin-1").lower()] = value.decode("latin-1").strip(" \t")
        return found

    def chunks(self, known: bool) -> Iterator[bytes]:
        """Yield the parts of the content."""
        if known:
            yield self.prefixed()
            return
        while length := self.varint():
            yield self._bytes(length)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield names and values to the end."""
        while self.more:
            yield self._name(self.varint()), self.prefixed()

    def padding(self) -> None:
        """Check that nothing but padding is left."""
        if self._data[self._at :].strip(b"\0"):
            raise FormatError("padding of a binary HTTP response is all zeros")

    def _pairs_until_zero(self) -> Iterator[tuple[bytes, bytes]]:
        while length := self.varint():
            yield self._name(length), self.prefixed()

    def _name(self, length: int) -> bytes:
        if not length:
            raise FormatError("a field of a binary HTTP response needs a name")
        return self._bytes(length)

    def _bytes(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise FormatError("a binary HTTP response ends too early")
        part = self._data[self._at : end]
        self._at = end
        return part


def _varint(number: int) -> bytes:
    for size in (1, 2, 4, 8):
        if number < 1 << (8 * size - 2):
            marked = number | (size.bit_length() - 1) << (8 * size - 2)
            return marked.to_bytes(size, "big")
    raise FormatError(f"{number} is too large for binary HTTP")


def _prefixed(part: bytes) -> bytes:
    return _varint(len(part)) + part
