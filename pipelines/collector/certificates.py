"""The certificate of a collector that ends TLS itself."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from sotto.errors import ParameterError

_logger = logging.getLogger(__name__)


class Certificate:
    """What the server proves itself with; read again when the files change, as at a renewal.

    Sessions are not resumed: whoever sees the traffic could join connections by their tickets.

    Raises
    ------
    ParameterError
        The files cannot be read, or do not belong together.
    """

    def __init__(
        self,
        certificate: Path,
        private_key: Path,
        warn: Callable[[str], None] = _logger.warning,
    ) -> None:
        self._files = certificate, private_key
        self._warn = warn
        self._warned = ""
        self.context = _tls()
        self._stamp = self._read()

    def reload(self) -> None:
        """Read the files again if they have changed; keep what was read if they are damaged."""
        try:
            if self._stamps() != self._stamp:
                self._stamp = self._read()
            self._warned = ""
        except ParameterError as error:
            if self._warned != str(error):
                self._warned = str(error)
                self._warn(f"{error}; the certificate that was read before holds")

    def _stamps(self) -> list[tuple[int, int, int]]:
        try:
            found = [os.stat(path) for path in self._files]
        except OSError as error:
            raise ParameterError(f"{error.filename}: {error.strerror}") from None
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in found]

    def _read(self) -> list[tuple[int, int, int]]:
        stamp = self._stamps()
        try:
            # A context that was given a wrong key could not be used any more.
            for context in (_tls(), self.context):
                context.load_cert_chain(*self._files, password="")
        except (OSError, ValueError) as error:
            names = " and ".join(map(str, self._files))
            why = getattr(error, "reason", None) or getattr(error, "strerror", None)
            raise ParameterError(f"{names} are no certificate and its key in PEM: {why}") from None
        return stamp


def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    # Up to TLS 1.2 the server keeps sessions, which Python cannot turn off.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
