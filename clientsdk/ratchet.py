"""The one-way ratchet behind a device's pseudonyms.

A device keeps one secret. In each budget period it goes by a pseudonym derived from the
collector, the period and the secret; when a period ends the secret is hashed forward and the old
one erased, so that whoever takes the secret later cannot tell which past pseudonyms were this
device's. The secret moves one step for each period that passes, recorded in or not: an older copy
of a device's file therefore comes back under the pseudonyms that the device has already used, and
the aggregator's audit sees both.
"""

from __future__ import annotations

from mechanisms.digests import sha256
from mechanisms.randomness import Source

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
    number = period.to_bytes(8, "little", signed=True)
    tag = b"sotto.pseudonym\0" + collector.encode() + b"\0" + number
    return sha256(tag + secret)[:16]
