"""Publishes messages to an HTTP collector through a relay, which hides who sends: Oblivious HTTP.

RFC 9458. The relay sees the device's address and encrypted bytes; the gateway, and the collector
behind it, see the message and the relay's address. Relay and gateway belong to different parties.
"""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

from clientsdk.publishers.binary_http import decode_response, encode_request
from clientsdk.publishers.encapsulation import Exchange, KeyConfiguration
from clientsdk.publishers.http import ANSWER_BYTES, Address, HttpPublisher, Request, hint, seconds
from sotto.errors import FormatError, PublishError

#: Statuses by which gateways refuse a key that they do not have (any more).
_KEY_REFUSED = (400, 401, 422)


class ObliviousPublisher(HttpPublisher):
    """Posts each message through a relay to a gateway, which forwards it to a collector.

    As :class:`~clientsdk.publishers.http.HttpPublisher`, but connected to the relay. Each attempt
    is encrypted anew, so that nobody but the gateway recognizes a message that is sent again, and
    padded to a power of two of at least 1024 bytes. A message counts as taken only if the gateway's
    own, encrypted answer says so. The extra ``ohttp`` is needed (ModuleNotFoundError).

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
    timeout : float, in [0.5, 600]
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
        timeout: float = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(relay, key=key, timeout=timeout, context=context)
        named = Address(collector, timeout, None)
        parts = urlsplit(collector)
        self._target = parts.scheme, parts.netloc, named.path + "/v1/reports"
        self._path = urlsplit(relay).path or "/"
        self._inner_fields = [(name.lower(), value) for name, value in self._headers.items()]
        self._configuration = KeyConfiguration.parse(gateway_keys)

    def _attempt(
        self, connection: http.client.HTTPConnection, body: bytes, deadline: float
    ) -> Request:
        inner = encode_request(*self._target, self._inner_fields, body)
        request = _Encapsulated(connection, self._path, *self._configuration.encapsulate(inner))
        request.send(deadline)
        return request


class _Encapsulated(Request):
    """A request whose answer holds the collector's, encrypted."""

    receiver = "relay or gateway"

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        encapsulated: bytes,
        exchange: Exchange,
    ) -> None:
        headers = {"Content-Type": "message/ohttp-req"}
        super().__init__(connection, "POST", path, encapsulated, headers, ANSWER_BYTES)
        self._exchange = exchange

    def require_success(self) -> None:
        """Raise PublishError unless the collector's answer says that it has the message."""
        try:
            super().require_success()
        except PublishError as error:
            if self.status in _KEY_REFUSED:
                why = f"{error}; does the app have its current keys?"
                raise PublishError(why, retry_after=error.retry_after) from None
            raise
        try:
            self._require_inner_success()
        except PublishError:
            self.connection.close()
            raise

    def _require_inner_success(self) -> None:
        try:
            status, fields, _ = decode_response(self._exchange.decapsulate(self.answer))
        except FormatError as error:
            raise PublishError(f"the gateway's answer cannot be read: {error}") from None
        if status // 100 != 2:
            raise PublishError(
                f"the collector answered with status {status}{hint(status)}",
                retry_after=seconds(fields.get("retry-after")),
            )
