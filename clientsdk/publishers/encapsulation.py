"""Encrypts requests to a gateway of Oblivious HTTP (RFC 9458), and decrypts its answers.

A relay between device and gateway sees who sends and how much; the gateway sees what is sent, and
not by whom. The extra ``ohttp`` brings what is needed.
"""

from __future__ import annotations

import hmac
import os
import struct
from typing import NamedTuple

from sotto.errors import FormatError, ParameterError, install_hint

try:
    from cryptography.exceptions import InvalidTag
    from pyhpke import AEADId, CipherSuite, ContextInterface, KDFId, KEMId
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"pyhpke is not installed: {install_hint('ohttp')}", name=error.name
    ) from None

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
            Of ``application/ohttp-keys``: configurations, each after its length (RFC 9458, section
            3.2), or one without a length, as gateways served them before.

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
