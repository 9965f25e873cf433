"""Producers of kafka-python: made in bounded time, thrown away in bounded time, never forked."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from clientsdk import exits
from sotto.errors import BrokerError, PublishError
from sotto.kafka import producers
from sotto.kafka.brokers import Broker
from sotto.kafka.topics import ReportTopic
from sotto.wire.format import MAX_MESSAGE

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: Messages for one partition go together up to this.
_BATCH_BYTES = 128 << 10
#: Milliseconds after which a connection that is not used is closed, and after which a producer
#: asks anew which brokers there are. It then shows nothing of how long an app runs, and asks again
#: whatever the second says when it is told that a partition has moved.
_IDLE = 60_000
_METADATA_AGE = 86_400_000

_abandoned: list[KafkaProducer] = []
#: Producers in use, with the process that made them.
_open: weakref.WeakKeyDictionary[KafkaProducer, int] = weakref.WeakKeyDictionary()


class Connecting:
    """A producer that is being made, in a thread: whoever needs it waits no longer than he wants.

    Parameters
    ----------
    make : callable
        Returns the producer, or raises.
    """

    def __init__(self, make: Callable[[], KafkaProducer]) -> None:
        self._make = make
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._unwanted = False
        self._producer: KafkaProducer | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="sotto-kafka-connect", daemon=True).start()

    def wait(self, seconds: float) -> KafkaProducer:
        """Return the producer.

        Raises
        ------
        PublishError
            It cannot be made, or is not ready yet.
        """
        if not self._done.wait(max(0.0, seconds)):
            raise PublishError("the broker has not answered yet")
        if self._producer is None and self._error is None:
            raise PublishError("the connection was given up meanwhile")
        if self._producer is None:
            raise PublishError(f"no broker takes messages: {self._error}") from self._error
        return self._producer

    @property
    def failed(self) -> bool:
        """Whether it has come to nothing."""
        return self._done.is_set() and self._producer is None

    @property
    def over(self) -> bool:
        """Whether it is made, or has come to nothing."""
        return self._done.is_set()

    def cancel(self) -> None:
        """Throw the producer away, at once or as soon as it is made."""
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


def make_producer(
    broker: Broker, topic: ReportTopic, compression: str | None, seconds: float
) -> KafkaProducer:
    """Return a producer for a topic that has the partitions that its name says.

    It is not idempotent: the number by which a broker knows an idempotent producer stays in every
    batch that it stores. What is sent twice has the same report key, and is counted once.

    Parameters
    ----------
    broker : Broker
    topic : ReportTopic
    compression : str, optional
    seconds : float
        Within which a message is acknowledged or given up. No step of making the producer takes
        more than a third of it.

    Raises
    ------
    BrokerError
        The broker cannot be reached, does not let us in, is too old, or has not that topic.
    """
    producer = producers.make_producer(
        broker,
        seconds,
        compression=compression,
        batch=_BATCH_BYTES,
        largest=2 * MAX_MESSAGE,
        measured=True,
        enable_idempotence=False,
        connections_max_idle_ms=_IDLE,
        metadata_max_age_ms=_METADATA_AGE,
    )
    _open[producer] = os.getpid()
    try:
        _require_partitions(producer, topic)
    except BaseException:
        discard(producer)
        raise
    return producer


def throttled(producer: KafkaProducer | None) -> float | None:
    """Return for how many seconds a broker has lately asked a producer to wait, None if for none.

    The producer heeds that itself; what it then cannot send in time fails, and this says for how
    long it is of no use to try again.
    """
    told = (producer.metrics() or {}) if producer is not None else {}
    longest = told.get("producer-metrics", {}).get("throttle-time-max", 0.0)
    return longest / 1000 if 0 < longest < math.inf else None


def discard(producer: KafkaProducer) -> None:
    """Give up what a producer holds and end its thread, within a second."""
    _open.pop(producer, None)
    producers.end_producer(producer)


def abandon(producer: KafkaProducer) -> None:
    """Leave a producer to the parent process: nothing here touches its connections again.

    It is kept, and kept from closing itself: that would wait for a thread that only the parent
    has, and could end connections that the parent uses.
    """
    _open.pop(producer, None)
    producer._closed = True
    _abandoned.append(producer)


def _require_partitions(producer: KafkaProducer, topic: ReportTopic) -> None:
    from kafka.errors import KafkaError

    try:
        found = producer.partitions_for(str(topic))
    except KafkaError as error:
        raise BrokerError(
            f"the broker knows no topic {topic}, or does not let us use it: "
            "make it with sotto topics create, or correct the name"
        ) from error
    if len(found) != topic.partitions:
        raise BrokerError(
            f"topic {topic} has {len(found)} partitions, not {topic.partitions}: "
            "create the next epoch with sotto topics create"
        )


def _discard_all(until: float) -> None:
    for producer, process in list(_open.items()):
        if process == os.getpid():
            _open.pop(producer, None)
            producers.end_producer(producer, max(0.0, until - time.monotonic()))


exits.do_then(_discard_all)
