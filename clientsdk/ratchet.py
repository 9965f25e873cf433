"""The one-way ratchet behind a device's pseudonyms.

A device keeps one secret. In each budget period it goes by a pseudonym derived from the
collector, the period and the secret; when a period ends the secret is hashed forward and the old
one erased, so that whoever takes the secret later cannot tell which past pseudonyms were this
device's. The secret moves one step for each period that passes, recorded in or not: an older copy
of a device's file therefore comes back under the pseudonyms that the device has already used, and
the aggregator's audit sees both.
"""

from __future__ import annotations

from typing import NamedTuple

from mechanisms.digests import sha256
from mechanisms.randomness import Source
from sotto.signatures import Signer, signed_pseudonym, unsigned_pseudonym

SECRET_BYTES = 32
_LONGEST_WALK = 1 << 20


def fresh(source: Source) -> bytes:
    """Draw a device's first secret."""
    return source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")


def advance(secret: bytes, periods: int) -> bytes:
    """Return the secret ``periods`` periods later.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    periods : int
        At least 0. A leap of more than 2**20 periods, which only a broken clock makes, walks
        2**20 steps, so that its cost stays below a second.

    Examples
    --------
    >>> secret = bytes(32)
    >>> advance(advance(secret, 1), 2) == advance(secret, 3)
    True
    """
    for _ in range(min(periods, _LONGEST_WALK)):
        secret = sha256(b"sotto.ratchet\0" + secret)
    return secret


def pseudonym(collector: str, period: int, secret: bytes) -> bytes:
    """Return the 16-byte name under which a device is known to ``collector`` in ``period``.

    Privacy
    -------
    Pseudonyms of different periods, or for different collectors, cannot be linked without the
    secret of a period not later than both.
    """
    return unsigned_pseudonym(_derived(b"sotto.pseudonym", collector, period, secret)[:16])


class Identity(NamedTuple):
    """What a device goes by in one budget period.

    Attributes
    ----------
    pseudonym : bytes
    seed : bytes or None
        Of the key that signs its messages, to which the pseudonym commits; None where they are
        not signed.
    """

    pseudonym: bytes
    seed: bytes | None = None

    def __repr__(self) -> str:
        """Return that it is one, and nothing of what it is."""
        return "Identity()"


def identity(collector: str, period: int, secret: bytes, *, signed: bool) -> Identity:
    """Return what a device goes by in ``period``, with a key pair if its messages are ``signed``.

    The key pair follows from the period's secret, so that nothing more need be kept of it while
    the period lasts, and once the secret is gone so is the key.

    Privacy
    -------
    As of :func:`pseudonym`. The signed and the unsigned pseudonym of one period, which a device
    has that records under plans of both kinds, cannot be linked without its secret either.
    """
    if not signed:
        return Identity(pseudonym(collector, period, secret))
    seed = _derived(b"sotto.signature", collector, period, secret)
    return Identity(signed_pseudonym(collector, period, Signer(seed).public_key), seed)


def _derived(purpose: bytes, collector: str, period: int, secret: bytes) -> bytes:
    number = period.to_bytes(8, "little", signed=True)
    return sha256(purpose + b"\0" + collector.encode() + b"\0" + number + secret)
