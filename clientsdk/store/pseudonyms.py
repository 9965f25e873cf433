"""The one-way ratchet behind a device's pseudonyms.

A device keeps one secret, from which, with the collector and the period, its pseudonym is derived.
When a new period begins the secret is hashed together with 32 fresh random bytes, and the old one
is erased. So neither the past nor the future follows from a secret: whoever takes one cannot tell
which past pseudonyms were this device's, nor, from the next period on, which are.

A copy of a device's file has the same pseudonym as the device until the period ends, so that the
aggregator's audit sees both; from the next period on it is a second device.
"""

from __future__ import annotations

from mechanisms.digests import sha256
from mechanisms.frozen import NamedTuple
from mechanisms.randomness import Source
from sotto.wire.signatures import Signer, signed_pseudonym, unsigned_pseudonym

SECRET_BYTES = 32


def draw_secret(source: Source) -> bytes:
    return source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")


def advance(secret: bytes, source: Source) -> bytes:
    """Return the secret of a new period: one step, however many periods have passed.

    The secret only runs forward even if the generator fails to be random.
    """
    return sha256(b"sotto.ratchet\0" + secret + draw_secret(source))


def pseudonym(collector: str, period: int, secret: bytes) -> bytes:
    """Return the 16-byte pseudonym of a device for ``collector`` in ``period``.

    Pseudonyms of different periods cannot be linked, whatever secret is known; nor can those for
    different collectors, without the secret of the period.
    """
    return unsigned_pseudonym(_derived(b"sotto.pseudonym", collector, period, secret)[:16])


class Identity(NamedTuple):
    """A device's pseudonym in one budget period, and its key."""

    pseudonym: bytes
    #: Seed of the key that signs its messages, to which the pseudonym commits; None if unsigned.
    seed: bytes | None = None

    def __repr__(self) -> str:
        return "Identity()"


def identity(collector: str, period: int, secret: bytes, *, signed: bool) -> Identity:
    """Return a device's identity in ``period``, with a key pair if its messages are ``signed``.

    The key pair follows from the period's secret, and once that is gone so is the key. The signed
    and the unsigned pseudonym of one period cannot be linked without the secret either.
    """
    if not signed:
        return Identity(pseudonym(collector, period, secret))
    seed = _derived(b"sotto.signature", collector, period, secret)
    return Identity(signed_pseudonym(collector, period, Signer(seed).public_key), seed)


def _derived(purpose: bytes, collector: str, period: int, secret: bytes) -> bytes:
    number = period.to_bytes(8, "little", signed=True)
    return sha256(purpose + b"\0" + collector.encode() + b"\0" + number + secret)
