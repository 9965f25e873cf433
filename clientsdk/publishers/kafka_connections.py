"""Connections to a Kafka broker, each for the messages of one pseudonym and of no other.

Traces of a producer at the broker (a connection, batches of records, its sequence of requests) then
never cover two pseudonyms, whoever shares the publisher. Producers are made and discarded in
bounded time, and never used across a fork.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from clientsdk import lifecycle
from sotto.errors import PublishError
from sotto.kafka import producers
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic
from sotto.wire.format import MAX_MESSAGE

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: How many pseudonyms have a connection of their own at one time.
LIMIT = 8
#: Seconds between two checks whether a connection can be given up.
_POLL = 0.05
#: Messages for one partition go together up to this.
_BATCH_BYTES = 128 << 10
#: Milliseconds after which a connection that is not used is closed, and after which a producer
#: asks anew which brokers there are. So it shows nothing of how long an app runs; when a broker
#: answers that a partition has moved, it asks again at once.
_IDLE = 60_000
_METADATA_AGE = 86_400_000

_abandoned: list[KafkaProducer] = []
#: Producers in use, with the process that made them.
_open: weakref.WeakKeyDictionary[KafkaProducer, int] = weakref.WeakKeyDictionary()


class Connection:
    """The producer of one pseudonym, made when it is first needed."""

    def __init__(self) -> None:
        #: Threads that are publishing through it.
        self.users = 0
        self._connecting: Connecting | None = None
        self.producer: KafkaProducer | None = None
        self._lock = threading.Lock()

    @property
    def idle(self) -> bool:
        connecting = self._connecting
        return not self.users and (connecting is None or connecting.over)

    def connected(self, make: Callable[[], KafkaProducer], deadline: float) -> KafkaProducer:
        """Return the producer; at most one is in the making."""
        with self._lock:
            if self.producer is not None:
                return self.producer
            if self._connecting is None or self._connecting.failed:
                self._connecting = Connecting(make)
            connecting = self._connecting
        producer = connecting.wait(deadline - time.monotonic())
        with self._lock:
            if self._connecting is connecting:
                self.producer, self._connecting = producer, None
            if self.producer is not producer:
                raise PublishError("the connection was given up meanwhile")
        return producer

    def end(self) -> None:
        producer, connecting = self._taken()
        if connecting is not None:
            connecting.cancel()
        if producer is not None:
            discard(producer)

    def leave(self) -> None:
        # A lock that another thread held at the fork stays locked.
        self._lock = threading.Lock()
        producer, connecting = self._taken()
        if producer is not None:
            abandon(producer)
        if connecting is not None:
            connecting.abandon()

    def _taken(self) -> tuple[KafkaProducer | None, Connecting | None]:
        with self._lock:
            producer, self.producer = self.producer, None
            connecting, self._connecting = self._connecting, None
        return producer, connecting


class Connections:
    """The connections of one publisher, by pseudonym; the least recently used one makes room."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: OrderedDict[bytes, Connection] = OrderedDict()

    def take(self, pseudonym: bytes, deadline: float) -> tuple[Connection, Connection | None]:
        """Return the connection of a pseudonym, and the one that makes room for it, if one does.

        The first is to be given back by :meth:`give_back`; the second is no longer known here.
        """
        with self._changed:
            while True:
                found = self._open.get(pseudonym)
                room = self._room() if found is None else None
                if found is not None or room is not None or len(self._open) < LIMIT:
                    break
                if time.monotonic() >= deadline:
                    raise PublishError("the broker has not answered on any connection yet")
                self._changed.wait(_POLL)
            leaving = None if room is None else self._open.pop(room)
            taken = self._open.setdefault(pseudonym, Connection())
            self._open.move_to_end(pseudonym)
            taken.users += 1
        return taken, leaving

    def give_back(self, connection: Connection) -> None:
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
        with self._changed:
            known = list(self._open.values())
            self._open.clear()
            self._changed.notify_all()
        return known

    def leave(self) -> None:
        self._changed = threading.Condition()
        for connection in self.clear():
            connection.leave()

    def _room(self) -> bytes | None:
        if len(self._open) < LIMIT:
            return None
        return next((each for each, known in self._open.items() if known.idle), None)


class Connecting:
    """A producer that a thread is making, so that nobody waits longer for it than he wants."""

    def __init__(self, make: Callable[[], KafkaProducer]) -> None:
        self._make = make
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._unwanted = False
        self._producer: KafkaProducer | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="sotto-kafka-connect", daemon=True).start()

    def wait(self, seconds: float) -> KafkaProducer:
        if not self._done.wait(max(0.0, seconds)):
            raise PublishError("the broker has not answered yet")
        if self._producer is None and self._error is None:
            raise PublishError("the connection was given up meanwhile")
        if self._producer is None:
            raise PublishError(f"no broker takes messages: {self._error}") from self._error
        return self._producer

    @property
    def failed(self) -> bool:
        return self._done.is_set() and self._producer is None

    @property
    def over(self) -> bool:
        return self._done.is_set()

    def cancel(self) -> None:
        """Discard the producer, at once or as soon as it is made."""
        with self._lock:
            self._unwanted = True
        if self._producer is not None:
            discard(self._producer)

    def abandon(self) -> None:
        """Leave a producer that is made already to the parent process."""
        if self._producer is not None:
            abandon(self._producer)

    def _run(self) -> None:
        try:
            producer = self._make()
        except Exception as error:
            self._error = error
        else:
            with self._lock:
                if not self._unwanted:
                    self._producer = producer
            if self._producer is None:
                discard(producer)
        finally:
            self._done.set()


def make_producer(broker: Broker, topic: ReportTopic, seconds: float) -> KafkaProducer:
    """Return a producer for a topic that has the partitions that its name says.

    It is not idempotent: the number by which a broker knows an idempotent producer stays in every
    batch that it stores. A report that is sent twice has the same report key, and is counted once.
    A message is acknowledged or given up within ``seconds``, and no step of making the producer
    takes more than a third of that. Raises BrokerError if the broker cannot be reached, refuses
    access, is too old, or lacks the topic.
    """
    producer = producers.make_producer(
        broker,
        seconds,
        batch=_BATCH_BYTES,
        largest=2 * MAX_MESSAGE,
        measured=True,
        enable_idempotence=False,
        connections_max_idle_ms=_IDLE,
        metadata_max_age_ms=_METADATA_AGE,
    )
    _open[producer] = os.getpid()
    try:
        producers.require_partitions(producer, topic)
    except BaseException:
        discard(producer)
        raise
    return producer


def throttled(producer: KafkaProducer | None) -> float | None:
    """Return for how many seconds a broker has lately asked a producer to wait, if it has."""
    metrics = (producer.metrics() or {}) if producer is not None else {}
    longest = metrics.get("producer-metrics", {}).get("throttle-time-max", 0.0)
    return longest / 1000 if 0 < longest < math.inf else None


def discard(producer: KafkaProducer) -> None:
    """Give up what a producer holds and end its thread, within a second."""
    _open.pop(producer, None)
    producers.end_producer(producer)


def abandon(producer: KafkaProducer) -> None:
    """Leave a producer to the parent process, and kept from closing itself."""
    from sotto.kafka.client_internals import never_close

    _open.pop(producer, None)
    never_close(producer)
    _abandoned.append(producer)


def _discard_all(until: float) -> None:
    for producer, process in list(_open.items()):
        if process == os.getpid():
            _open.pop(producer, None)
            producers.end_producer(producer, max(0.0, until - time.monotonic()))


lifecycle.at_exit(_discard_all, lifecycle.CONNECTIONS)
