"""The body of a request to the collector: messages, each after its length.

A length is an unsigned 32-bit number, little-endian. There is nothing else: a message says itself
which plan and shard it is of (:mod:`sotto.wire.format`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from sotto.errors import FormatError
from sotto.wire.format import MAX_MESSAGE

_LENGTH = struct.Struct("<I")


def join_messages(messages: Iterable[bytes]) -> bytes:
    """Return the body that holds these messages.

    Examples
    --------
    >>> split_messages(join_messages([b"one", b"other"]))
    [b'one', b'other']
    """
    parts = []
    for message in messages:
        parts += [_LENGTH.pack(len(message)), message]
    return b"".join(parts)


def split_messages(body: bytes) -> list[bytes]:
    """Return the messages that a body holds, at least one.

    Raises
    ------
    FormatError
        The body is not exactly that, or a message is empty or longer than ``MAX_MESSAGE`` bytes.
        The contents of the messages are not looked at.
    """
    messages = []
    position = 0
    while position < len(body):
        if position + _LENGTH.size > len(body):
            raise FormatError("the body ends within the length of a message")
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size
        if not 1 <= length <= MAX_MESSAGE:
            raise FormatError(f"a message of {length} bytes; 1 to {MAX_MESSAGE} are allowed")
        if position + length > len(body):
            raise FormatError("the body ends within a message")
        messages.append(body[position : position + length])
        position += length
    if not messages:
        raise FormatError("a body holds at least one message")
    return messages
