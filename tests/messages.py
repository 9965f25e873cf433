"""Messages of devices, as short as they can be."""

from __future__ import annotations

from sotto.wire.format import Row, encode_message

#: The pseudonym of a sender, for tests in which it does not matter.
SOMEBODY = b"a pseudonym here"


def message(payload: bytes = b"x", pseudonym: bytes = SOMEBODY) -> bytes:
    """Return a message with one row.

    Parameters
    ----------
    payload : bytes
        By which a test knows it again.
    pseudonym : bytes
        16 bytes.
    """
    return encode_message(bytes(32), 0, [(0, [Row(0, pseudonym, bytes(16), 0, payload)])])


def pseudonym(number: int) -> bytes:
    """Return one of many pseudonyms."""
    return number.to_bytes(16, "big")
