"""Messages and requests for plans through a relay, which hides who sends them: Oblivious HTTP.

RFC 9458, over Binary HTTP (RFC 9292). The relay sees the device's address and encrypted bytes; the
gateway, and the collector behind it, see the request and the relay's address. Relay and gateway
belong to different parties. The extra ``ohttp`` brings what is needed.
"""

from __future__ import annotations

import hmac
import http.client
import os
import ssl
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from clientsdk.publishers.http import Address, HttpPublisher
from clientsdk.publishers.http_requests import Request, RequestParts, hint, seconds
from sotto.errors import FormatError, ParameterError, PublishError, install_hint

if TYPE_CHECKING:
    from datetime import timedelta

try:
    from cryptography.exceptions import InvalidTag
    from pyhpke import AEADId, CipherSuite, ContextInterface, KDFId, KEMId
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pyhpke is not installed: {install_hint('ohttp')}", name=error.name
    ) from None

#: Statuses by which gateways refuse a key that they do not have (any more).
_KEY_REFUSED = (400, 401, 422)
#: Bytes by which an encapsulated answer is longer than its content, at most: head and padding.
_ENVELOPE = 4096


class ObliviousPublisher(HttpPublisher):
    """Posts each message through a relay to a gateway, which forwards it to a collector.

    As :class:`~clientsdk.publishers.http.HttpPublisher`, but connected to the relay. Each attempt
    is encrypted anew, so that nobody but the gateway recognizes a message that is sent again, and
    padded to a power of two of at least 1024 bytes. A message counts as taken only if the gateway's
    own, encrypted answer says so. ``fetch_plan`` given this publisher asks through the relay, too.

    Parameters
    ----------
    relay : str
        The relay's resource, such as ``"https://relay.example/ohttp"``; ``http://`` for loopback
        alone.
    collector : str
        As the gateway knows it, such as ``"https://telemetry.example"``.
    gateway_keys : bytes
        The gateway's key configuration (``application/ohttp-keys``). It ships with the app: a
        device that asked the gateway for it could be given a key of its own, by which the gateway
        would recognize it.
    key : str, optional
        The app's, for the collector; relay and network do not see it.
    timeout : float or timedelta, in [0.5, 600]
        Seconds that a message may take.
    context : ssl.SSLContext, optional
        For the connection to the relay; ``ssl.create_default_context()`` otherwise.

    Raises
    ------
    ParameterError
        One of these is not as it should be.

    References
    ----------
    .. [1] M. Thomson and C. A. Wood, "Oblivious HTTP", RFC 9458, 2024.
    .. [2] M. Thomson and C. A. Wood, "Binary Representation of HTTP Messages", RFC 9292, 2022.
    """

    def __init__(
        self,
        relay: str,
        collector: str,
        gateway_keys: bytes,
        *,
        key: str | None = None,
        timeout: float | timedelta = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(relay, key=key, timeout=timeout, context=context)
        self._target = Address(collector, None)
        parts = urlsplit(collector)
        self._scheme, self._authority = parts.scheme, parts.netloc
        self._relay_path = urlsplit(relay).path or "/"
        self._configuration = KeyConfiguration.parse(gateway_keys)

    def _request(self, connection: http.client.HTTPConnection, parts: RequestParts) -> Request:
        target = self._scheme, self._authority, self._target.path + parts.path
        fields = [(name.lower(), value) for name, value in parts.headers.items()]
        inner = encode_request(parts.method, *target, fields, parts.body or b"")
        encapsulated, exchange = self._configuration.encapsulate(inner)
        kind, most = {"Content-Type": "message/ohttp-req"}, parts.most + _ENVELOPE
        outer = RequestParts("POST", self._relay_path, encapsulated, kind, most)
        return _Encapsulated(connection, outer, exchange, parts.method)


class _Encapsulated(Request):
    """A request whose answer holds the collector's, encrypted."""

    receiver = "relay or gateway"

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        parts: RequestParts,
        exchange: Exchange,
        method: str,
    ) -> None:
        super().__init__(connection, parts)
        self._exchange, self._method = exchange, method

    def require_success(self) -> None:
        """Raise PublishError unless the collector's answer, now in ``answer``, is a success."""
        try:
            super().require_success()
        except PublishError as error:
            if self.status in _KEY_REFUSED:
                why = f"{error}; does the app have its current keys?"
                raise PublishError(why, retry_after=error.retry_after) from None
            raise
        try:
            self.answer = self._inner()
        except PublishError:
            self.connection.close()
            raise

    def _inner(self) -> bytes:
        try:
            status, fields, content = decode_response(self._exchange.decapsulate(self.answer))
        except FormatError as error:
            raise PublishError(f"the gateway's answer cannot be read: {error}") from None
        if status // 100 != 2:
            said = f"the collector answered with status {status}"
            said += hint(status) if self._method == "POST" else ""
            raise PublishError(said, retry_after=seconds(fields.get("retry-after")))
        return content


# Oblivious HTTP: encryption to a gateway (RFC 9458, section 4).

_REQUEST_LABEL = b"message/bhttp request"
_RESPONSE_LABEL = b"message/bhttp response"
_KEM = KEMId.DHKEM_X25519_HKDF_SHA256
_KDF = KDFId.HKDF_SHA256
_AEADS = {each.value: each for each in (AEADId.AES128_GCM, AEADId.CHACHA20_POLY1305)}
_KEY_BYTES = 32
_LENGTH = struct.Struct(">H")
#: Key identifier and KEM; then the public key, and the length of the list of algorithms.
_HEAD = struct.Struct(">BH")
_ALGORITHMS = struct.Struct(">HH")
#: Key identifier, KEM, KDF, AEAD.
_HEADER = struct.Struct(">BHHH")


class KeyConfiguration(NamedTuple):
    """A gateway's public key, and the algorithms to use it with."""

    key_id: int
    public_key: bytes
    aead: AEADId

    @classmethod
    def parse(cls, data: bytes) -> KeyConfiguration:
        """Return the first usable one of a gateway's, the same for whoever has the same bytes.

        Parameters
        ----------
        data : bytes
            Content of ``application/ohttp-keys``: configurations, each after its length (RFC 9458,
            section 3.2), or one without a length, as gateways served them before.

        Raises
        ------
        ParameterError
            The bytes are something else, or nothing in them is usable: the key encapsulation is
            X25519 with HKDF-SHA256, and the algorithms are HKDF-SHA256 with AES-128-GCM or
            ChaCha20-Poly1305.
        """
        if not isinstance(data, bytes):
            raise ParameterError(f"keys must be bytes, not {type(data).__name__}")
        usable = list(filter(None, map(cls._parse_one, _split(data) or [data])))
        if not usable:
            raise ParameterError(
                "keys must hold a configuration with X25519, HKDF-SHA256 and AES-128-GCM or "
                "ChaCha20-Poly1305, as a gateway serves it (application/ohttp-keys)"
            )
        return usable[0]

    @classmethod
    def _parse_one(cls, data: bytes) -> KeyConfiguration | None:
        """Return a configuration; None for one of other algorithms, or other bytes."""
        listed = data[_HEAD.size + _KEY_BYTES :]
        if len(listed) < _LENGTH.size or _HEAD.unpack_from(data)[1] != _KEM.value:
            return None
        (length,) = _LENGTH.unpack_from(listed)
        algorithms = listed[_LENGTH.size :]
        if length != len(algorithms) or length % _ALGORITHMS.size:
            return None
        for kdf, aead in _ALGORITHMS.iter_unpack(algorithms):
            if kdf == _KDF.value and aead in _AEADS:
                return cls(data[0], data[_HEAD.size : _HEAD.size + _KEY_BYTES], _AEADS[aead])
        return None

    def encapsulate(self, request: bytes) -> tuple[bytes, Exchange]:
        """Encrypt a request; return it with what decrypts its answer.

        The randomness is the operating system's, fresh in each call and each forked process:
        nothing joins two of them.
        """
        suite = CipherSuite.new(_KEM, _KDF, self.aead)
        header = _HEADER.pack(self.key_id, _KEM.value, _KDF.value, self.aead.value)
        enc, context = suite.create_sender_context(
            suite.kem.deserialize_public_key(self.public_key),
            info=_REQUEST_LABEL + b"\0" + header,
            eks=suite.kem.derive_key_pair(os.urandom(_KEY_BYTES)),
        )
        return header + enc + context.seal(request), Exchange(suite, enc, context)


class Exchange(NamedTuple):
    """A request that was sent: decrypts its answer, and no other's."""

    suite: CipherSuite
    enc: bytes
    context: ContextInterface

    def decapsulate(self, response: bytes) -> bytes:
        """Return the answer.

        Raises
        ------
        FormatError
            These bytes are not what the gateway has answered to this very request.
        """
        aead = self.suite.aead
        secret_bytes = max(aead.key_size, aead.nonce_size)
        nonce, sealed = response[:secret_bytes], response[secret_bytes:]
        secret = self.context.export(_RESPONSE_LABEL, secret_bytes)
        pseudorandom_key = hmac.digest(self.enc + nonce, secret, "sha256")
        key = aead.import_key(_expand(pseudorandom_key, b"key", aead.key_size))
        try:
            return key.open(sealed, _expand(pseudorandom_key, b"nonce", aead.nonce_size))
        except (InvalidTag, ValueError):
            raise FormatError("the answer is not the gateway's to this request") from None


def _split(data: bytes) -> list[bytes]:
    """Return the configurations of a list; empty if it is none."""
    found, position = [], 0
    while position < len(data):
        if position + _LENGTH.size > len(data):
            return []
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not length or position + length > len(data):
            return []
        found.append(data[position : position + length])
        position += length
    return found


def _expand(pseudorandom_key: bytes, label: bytes, length: int) -> bytes:
    """Return the first bytes of HKDF-Expand with SHA-256, at most 32 (RFC 5869)."""
    return hmac.digest(pseudorandom_key, label + b"\1", "sha256")[:length]


# Requests and answers as bytes: Binary HTTP (RFC 9292), as far as a publisher needs it.

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
    method: str,
    scheme: str,
    authority: str,
    path: str,
    fields: Iterable[tuple[str, str]],
    content: bytes,
) -> bytes:
    """Return a request of known length, padded to a power of two, at least ``LEAST`` bytes.

    Examples
    --------
    >>> where = "https", "telemetry.example", "/v1/reports"
    >>> request = encode_request("POST", *where, [], b"message")
    >>> len(request), request.rstrip(bytes(1)).endswith(b"message")
    (1024, True)
    """
    control = (each.encode() for each in (method, scheme, authority, path))
    section = b"".join(_prefixed(part.encode()) for field in fields for part in field)
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
    reader = _BinaryHttpReader(data)
    framing = reader.varint()
    if framing not in (_RESPONSE, _CHUNKED_RESPONSE):
        raise FormatError(f"a binary HTTP response has framing 1 or 3, not {framing}")
    known = framing == _RESPONSE
    while (status := reader.varint()) in _INFORMATIONAL:
        # An informational answer always has its fields.
        reader.fields(known)
    if status not in _FINAL:
        raise FormatError(f"status {status} is none of a final answer")
    # An empty part at the end may be left out, with all that follows it.
    fields = reader.fields(known) if reader.more else {}
    content = b"".join(reader.chunks(known)) if reader.more else b""
    if reader.more:
        reader.fields(known)
    reader.padding()
    return Response(status, fields, content)


class _BinaryHttpReader:
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
        pairs = _BinaryHttpReader(self.prefixed())._pairs() if known else self._pairs_until_zero()
        return {
            name.decode("latin-1").lower(): value.decode("latin-1").strip(" \t")
            for name, value in pairs
        }

    def chunks(self, known: bool) -> Iterator[bytes]:
        """Yield the parts of the content."""
        if known:
            yield self.prefixed()
            return
        while length := self.varint():
            yield self._bytes(length)

    def padding(self) -> None:
        """Check that nothing but padding is left."""
        if self._data[self._at :].strip(b"\0"):
            raise FormatError("padding of a binary HTTP response is all zeros")

    def _pairs(self) -> Iterator[tuple[bytes, bytes]]:
        while self.more:
            yield self._name(self.varint()), self.prefixed()

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
