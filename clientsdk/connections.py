"""Connections to a broker, each of them for the messages of one pseudonym and of no other.

What a producer leaves behind at the broker (a connection, batches of records, its sequence of
requests) then never covers two pseudonyms, whoever shares the publisher. A few connections stay
open side by side, so that several clients of one process do not connect anew at each message.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from clientsdk.producing import Connecting, abandon, discard
from sotto.errors import PublishError

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: How many pseudonyms have a connection of their own at one time.
LIMIT = 8
#: Seconds between two looks whether a connection can be given up.
_LOOK = 0.05


class Connection:
    """The producer of one pseudonym, made when it is first needed.

    Attributes
    ----------
    users : int
        Threads that are publishing through it.
    """

    def __init__(self) -> None:
        self.users = 0
        self._connecting: Connecting | None = None
        self._producer: KafkaProducer | None = None
        self._lock = threading.Lock()

    @property
    def producer(self) -> KafkaProducer | None:
        """The producer, None if it is not made yet."""
        return self._producer

    @property
    def idle(self) -> bool:
        """Whether nobody uses it, and nothing is waited for."""
        connecting = self._connecting
        return not self.users and (connecting is None or connecting.over)

    def connected(self, make: Callable[[], KafkaProducer], deadline: float) -> KafkaProducer:
        """Return the producer; at most one is in the making.

        Raises
        ------
        PublishError
            It cannot be made, or is not ready by the deadline.
        """
        with self._lock:
            if self._producer is not None:
                return self._producer
            if self._connecting is None or self._connecting.failed:
                self._connecting = Connecting(make)
            connecting = self._connecting
        producer = connecting.wait(deadline - time.monotonic())
        with self._lock:
            if self._connecting is connecting:
                self._producer, self._connecting = producer, None
            if self._producer is not producer:
                raise PublishError("the connection was given up meanwhile")
        return producer

    def end(self) -> None:
        """Disconnect, and give up what the broker has not acknowledged."""
        producer, connecting = self._taken()
        if connecting is not None:
            connecting.cancel()
        if producer is not None:
            discard(producer)

    def leave(self) -> None:
        """Leave it to the parent process."""
        # A lock that another thread held at the fork stays locked.
        self._lock = threading.Lock()
        producer, connecting = self._taken()
        if producer is not None:
            abandon(producer)
        if connecting is not None:
            connecting.abandon()

    def _taken(self) -> tuple[KafkaProducer | None, Connecting | None]:
        with self._lock:
            producer, self._producer = self._producer, None
            connecting, self._connecting = self._connecting, None
        return producer, connecting


class Connections:
    """The connections of one publisher, by pseudonym; the least recently used one makes room.

    Parameters
    ----------
    limit : int
        How many there are at most.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._open: OrderedDict[bytes, Connection] = OrderedDict()

    def take(self, pseudonym: bytes, deadline: float) -> tuple[Connection, Connection | None]:
        """Return the connection of a pseudonym, and the one that makes room for it, if one does.

        The first is to be given back by :meth:`give_back`; the second is no longer known here,
        and whoever gets it waits for what it has sent, and ends it.

        Raises
        ------
        PublishError
            All connections are in use, or in the making, until the deadline.
        """
        with self._changed:
            while True:
                found = self._open.get(pseudonym)
                room = self._room() if found is None else None
                if found is not None or room is not None or len(self._open) < self._limit:
                    break
                if time.monotonic() >= deadline:
                    raise PublishError("the broker has not answered on any connection yet")
                self._changed.wait(_LOOK)
            leaving = None if room is None else self._open.pop(room)
            taken = self._open.setdefault(pseudonym, Connection())
            self._open.move_to_end(pseudonym)
            taken.users += 1
        return taken, leaving

    def give_back(self, connection: Connection) -> None:
        """Note that a thread publishes through a connection no longer."""
        with self._changed:
            connection.users -= 1
            self._changed.notify_all()

    def forget(self, connection: Connection) -> bool:
        """Let the next message connect anew; return whether the connection was known."""
        with self._changed:
            for pseudonym, known in self._open.items():
                if known is connection:
                    del self._open[pseudonym]
                    self._changed.notify_all()
                    return True
        return False

    def clear(self) -> list[Connection]:
        """Forget all connections, and return them."""
        with self._changed:
            known = list(self._open.values())
            self._open.clear()
            self._changed.notify_all()
        return known

    def leave(self) -> None:
        """Leave all connections to the parent process."""
        self._changed = threading.Condition()
        for connection in self.clear():
            connection.leave()

    def _room(self) -> bytes | None:
        """Return the pseudonym that makes room if the limit is reached, None if none can."""
        if len(self._open) < self._limit:
            return None
        return next((each for each, known in self._open.items() if known.idle), None)
