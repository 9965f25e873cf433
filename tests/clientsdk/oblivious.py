"""A gateway in Python and a relay that keeps what passes, for tests of Oblivious HTTP."""

from __future__ import annotations

import hmac
import os
import struct
import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection

from local_server import Answer, LocalServer, Request
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKeyPair

KEM = KEMId.DHKEM_X25519_HKDF_SHA256


def expand(key: bytes, label: bytes, length: int) -> bytes:
    return hmac.digest(key, label + b"\1", "sha256")[:length]


class Gateway:
    """The other side of the encapsulation: has the private key."""

    def __init__(self, key_id: int = 7, aead: AEADId = AEADId.AES128_GCM, private: bytes = b""):
        self.suite = CipherSuite.new(KEM, KDFId.HKDF_SHA256, aead)
        if private:
            self.private = self.suite.kem.deserialize_private_key(private)
        else:
            pair: KEMKeyPair = self.suite.kem.derive_key_pair(os.urandom(32))
            self.private = pair.private_key
            public = pair.public_key.to_public_bytes()
            head = struct.pack(">BH", key_id, KEM.value)
            self.configuration = head + public + struct.pack(">HHH", 4, 1, aead.value)

    def decapsulate(self, sent: bytes) -> tuple[bytes, Callable[..., bytes]]:
        """Return the request, and what encapsulates an answer to it."""
        header, enc, sealed = sent[:7], sent[7:39], sent[39:]
        info = b"message/bhttp request\0" + header
        context = self.suite.create_recipient_context(enc, self.private, info=info)
        aead = self.suite.aead

        def encapsulate(answer: bytes, nonce: bytes = b"") -> bytes:
            nonce = nonce or os.urandom(aead.key_size)
            secret = context.export(b"message/bhttp response", aead.key_size)
            key = hmac.digest(enc + nonce, secret, "sha256")
            sealer = aead.import_key(expand(key, b"key", aead.key_size))
            return nonce + sealer.seal(answer, expand(key, b"nonce", aead.nonce_size))

        return context.open(sealed), encapsulate


def prefixed(*parts: bytes) -> bytes:
    """Parts of at most 63 bytes, each after its length."""
    return b"".join(bytes([len(part)]) + part for part in parts)


def varint(number: int) -> bytes:
    return struct.pack(">H", number | 0x4000)


def known(status: int, *fields: bytes, content: bytes = b"") -> bytes:
    """A response of known length."""
    return b"\1" + varint(status) + prefixed(prefixed(*fields), content) + b"\0"


def served(url: str) -> bytes:
    """The content of a URL, once somebody serves it."""
    for _ in range(6000):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read()
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody serves {url}")


class Relay(LocalServer):
    """Passes a request's body on, or answers as a test says, and keeps all that it sees."""

    def __init__(self, gateway: str = "") -> None:
        super().__init__(self.relayed)
        self.url += "/relay"
        #: Host and port of the gateway.
        self.gateway = gateway
        self.answers: list[Answer] = []
        self.given: Callable[[bytes], Answer] = self.forward
        self.lock = threading.Lock()
        self.upstream: HTTPConnection | None = None

    def relayed(self, asked: Request) -> Answer:
        self.answers.append(self.given(asked.body))
        return self.answers[-1]

    def server_close(self) -> None:
        super().server_close()
        if self.upstream is not None:
            self.upstream.close()

    def handle_error(self, *_: object) -> None:
        """A device that has hung up is no fault of the relay's."""

    def forward(self, body: bytes) -> Answer:
        """Ask the gateway, over one connection for all devices."""
        with self.lock:
            for fresh in (False, True):
                if fresh or self.upstream is None:
                    self.upstream = HTTPConnection(self.gateway, timeout=300)
                try:
                    self.upstream.request(
                        "POST", "/gateway", body, {"Content-Type": "message/ohttp-req"}
                    )
                    answer = self.upstream.getresponse()
                    return Answer(answer.status, body=answer.read())
                except OSError:
                    self.upstream.close()
                    self.upstream = None
            return Answer(502)


class Behind:
    """The gateway and the collector behind the relay."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        #: Decrypted requests.
        self.requests: list[bytes] = []
        #: The collector's answer, and a function that may change the gateway's encrypted answer.
        self.answer = known(204)
        self.change: Callable[[bytes], Answer] = lambda sealed: Answer(
            200, {"Content-Type": "message/ohttp-res"}, sealed
        )

    def __call__(self, body: bytes) -> Answer:
        request, encapsulate = self.gateway.decapsulate(body)
        self.requests.append(request)
        return self.change(encapsulate(self.answer))
