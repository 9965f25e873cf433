"""Signed messages: a key pair of one budget period, and a pseudonym that commits to the key.

Under a plan with ``authentication: required`` a device has a key pair in each budget period, and
its pseudonym is a hash of the public key. Every message carries the public key and one signature,
so that only its device can add a report to a pseudonym. A signed pseudonym begins with
:data:`SIGNED_TAG` and no other does: from a row alone one sees whether it needs a signature
(``docs/spec/formats.md``). Needs the extra ``signatures``, imported at first use.

References
----------
S. Josefsson, I. Liusvaara, "Edwards-Curve Digital Signature Algorithm (EdDSA)", RFC 8032: signing
is deterministic, so the same message has the same signature whenever it is sent again.
"""

from __future__ import annotations

from functools import cache

from mechanisms.digests import sha256
from sotto.errors import ParameterError, install_hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

#: Bytes of a private key's seed, of a public key and of a signature.
SEED_BYTES, PUBLIC_KEY_BYTES, SIGNATURE_BYTES = 32, 32, 64
#: The first bytes of a pseudonym that commits to a key. Somebody else's key would have to meet the
#: 104 bits that are left of it, in the same budget period. A single bit would leave more of them,
#: but half of the pseudonyms of devices from before there were signatures have it.
SIGNED_TAG = b"\xed\x25\x19"

_MESSAGE = b"sotto.message.signed\0"
_PSEUDONYM = b"sotto.pseudonym.signed\0"


class Signer:
    """Signs the messages of one device in one budget period.

    The seed, of 32 bytes and secret, is the private key of Ed25519; ``public_key`` has 32 bytes.
    Raises ModuleNotFoundError if the extra ``signatures`` is not installed.

    Examples
    --------
    >>> signer = Signer(bytes(32))
    >>> is_valid(signer.public_key, signer.sign(b"what"), b"what")
    True
    >>> is_valid(signer.public_key, signer.sign(b"what"), b"else")
    False
    """

    def __init__(self, seed: bytes) -> None:
        require_signatures()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(seed) != SEED_BYTES:
            raise ParameterError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key: bytes = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of all bytes of a message that come before it."""
        return self._key.sign(_MESSAGE + message)


def is_valid(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature is that of a message's bytes before it, by this key."""
    keys, invalid = _verification()
    try:
        keys.from_public_bytes(public_key).verify(signature, _MESSAGE + message)
    except (invalid, ValueError):
        return False
    return True


@cache
def _verification() -> tuple[type[Ed25519PublicKey], type[Exception]]:
    """Return the class of public keys, and what one raises of an invalid signature."""
    require_signatures()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey, InvalidSignature


def signed_pseudonym(collector: str, period: int, public_key: bytes) -> bytes:
    """Return the 16-byte pseudonym that commits to a public key in a budget period, a number.

    >>> needs_signature(signed_pseudonym("fleet.example", 2800, bytes(32)))
    True
    """
    number = period.to_bytes(8, "little", signed=True)
    digest = sha256(_PSEUDONYM + collector.encode() + b"\0" + number + public_key)
    return SIGNED_TAG + digest[: 16 - len(SIGNED_TAG)]


def unsigned_pseudonym(identifier: bytes) -> bytes:
    """Return an identifier as a pseudonym that commits to no key: one in 16 million is changed."""
    if not needs_signature(identifier):
        return identifier
    return bytes([identifier[0] ^ 1]) + identifier[1:]


def needs_signature(pseudonym: bytes) -> bool:
    """Whether a pseudonym commits to a key."""
    return pseudonym.startswith(SIGNED_TAG)


def require_signatures() -> None:
    """Raise ModuleNotFoundError unless the extra ``signatures`` is installed."""
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "the plan says authentication: required, which needs cryptography: "
            f"{install_hint('signatures')}",
            name="cryptography",
        ) from None
