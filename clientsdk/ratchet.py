"""The one-way ratchet behind a device's pseudonyms.

A device keeps one secret. In each budget period it goes by a pseudonym derived from the
collector, the period and the secret. When a new period begins the secret is hashed together with
32 fresh random bytes, and the old one is erased. So neither the past nor the future follows from
a secret: whoever takes one cannot tell which past pseudonyms were this device's, nor, from the
next period on, which are.

A copy of a device's file goes by the same pseudonym as the device until the period ends, so that
the aggregator's audit sees both. In the next period they part: each draws fresh bytes of its own,
and the copy is a second device.
"""

from __future__ import annotations

from mechanisms.digests import sha256
from mechanisms.randomness import Source

SECRET_BYTES = 32


def fresh(source: Source) -> bytes:
    """Draw 32 bytes: a device's first secret, or what a later one is mixed with."""
    return source.bits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "little")


def advance(secret: bytes, source: Source) -> bytes:
    """Return the secret of a new period: one step, however many periods have passed.

    Parameters
    ----------
    secret : bytes
        The secret of the period before, 32 bytes, to be erased.
    source : Source
        Draws the 32 fresh bytes that are hashed with it.

    Privacy
    -------
    Of two secrets neither says anything about the other without those bytes, which are never
    stored. Where the generator fails to be random, the secret still only runs forward.
    """
    return sha256(b"sotto.ratchet\0" + secret + fresh(source))


def pseudonym(collector: str, period: int, secret: bytes) -> bytes:
    """Return the 16-byte name under which a device is known to ``collector`` in ``period``.

    Privacy
    -------
    Pseudonyms of different periods cannot be linked, whatever secret is known, since each period
    has fresh randomness of its own; nor can those for different collectors, without the secret of
    the period.
    """
    number = period.to_bytes(8, "little", signed=True)
    tag = b"sotto.pseudonym\0" + collector.encode() + b"\0" + number
    return sha256(tag + secret)[:16]
