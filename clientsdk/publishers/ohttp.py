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
from clientsdk.publishers.http import HttpPublisher, Request, parsed, seconds
from sotto.errors import FormatError

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

    _peer = "relay"

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
        self._path = urlsplit(relay).path or "/"
        self._inner_fields = [(name.lower(), value) for name, value in self._headers.items()]
        self._headers = {"Content-Type": "message/ohttp-req"}
        https, host, port, self._inner_path = parsed(collector)
        self._scheme = "https" if https else "http"
        named = f"[{host}]" if ":" in host else host
        self._authority = named if port is None else f"{named}:{port}"
        self._configuration = KeyConfiguration.parse(gateway_keys)

    def _request(self, connection: http.client.HTTPConnection, body: bytes) -> Request:
        inner = encode_request(
            self._scheme, self._authority, self._inner_path, self._inner_fields, body
        )
        encapsulated, exchange = self._configuration.encapsulate(inner)
        return _Encapsulated(exchange, connection, self._path, encapsulated, self._headers)


class _Encapsulated(Request):
    """A request whose answer holds the collector's, encrypted."""

    def __init__(
        self,
        exchange: Exchange,
        connection: http.client.HTTPConnection,
        path: str,
        body: bytes,
        headers: dict[str, str],
    ) -> None:
        super().__init__(connection, path, body, headers)
        self._exchange = exchange

    def judge(self, status: int, hint: float | None, body: bytes) -> tuple[str, float | None]:
        if status != 200:
            why = "; does the app have its current keys?" if status in _KEY_REFUSED else ""
            return f"the relay or gateway answered with status {status}{why}", hint
        try:
            inner = decode_response(self._exchange.decapsulate(body))
        except FormatError as error:
            return f"the gateway's answer cannot be read: {error}", hint
        return super().judge(inner.status, seconds(inner.fields.get("retry-after")), inner.content)
