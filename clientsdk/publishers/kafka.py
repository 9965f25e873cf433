"""Publishes messages to a Kafka topic."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from clientsdk import lifecycle
from clientsdk.publishers import pseudonym_in
from clientsdk.publishers.kafka_connections import Connection, Connections, make_producer, throttled
from sotto.errors import PublishError, seconds_of, wrong_type
from sotto.kafka.brokers import Broker, require_client
from sotto.kafka.topics import ReportTopic

if TYPE_CHECKING:
    from datetime import timedelta

    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.producer.future import FutureRecordMetadata

#: Bytes sent and not acknowledged; who publishes more waits.
IN_FLIGHT_BYTES = 16 << 20
#: The time of sending that a record bears, ms: none. Brokers keep it beside their own time of
#: appending, and how a device's clock is off would be the same for all of its pseudonyms.
_NO_TIME = 0


class _Sent(NamedTuple):
    """A message that the broker may not have acknowledged yet, and who sent it."""

    thread: int
    size: int
    future: FutureRecordMetadata
    connection: Connection

    @property
    def acknowledged(self) -> bool:
        return bool(self.future.succeeded())


class KafkaPublisher(lifecycle.Forkable, lifecycle.Unshared):
    """Sends each message to the partition of its shard, and has it acknowledged by all replicas.

    The extra ``kafka`` is needed (ModuleNotFoundError). A message that the broker does not
    acknowledge in time is an error: the client keeps those reports and sends the same bytes again,
    so that a broker that is dead, slow or full delays reports and loses none. Nothing is connected
    before the first message; after a failure the next message connects anew, and a process forked
    from this one has connections of its own. A message that was late since the broker slows this
    client down (a quota) is not tried again for as long as the broker has asked for.

    Each pseudonym has a connection and a producer of its own, at most eight of them side by side:
    the least recently used one makes room. A fleet in one process is better off with producers of
    its own (:mod:`sotto.kafka.producers`).

    Parameters
    ----------
    broker : Broker or str
        How to reach the cluster; ``"host:port"`` is one in the clear.
    topic : ReportTopic or str
        The full name, such as ``"reports-e1-p8"``, as ``sotto topics create`` prints it.
    timeout : float or timedelta, in [0.5, 600]
        Seconds that any call may take at most; what is acknowledged later is sent again.
    """

    def __init__(
        self, broker: Broker | str, topic: ReportTopic | str, *, timeout: float | timedelta = 10.0
    ) -> None:
        # Not at first use: a fork amid an import in another thread leaves the child without it.
        require_client()
        if not isinstance(broker, Broker | str):
            raise wrong_type("broker", "a Broker, or a text such as 'host:port'", broker)
        if not isinstance(topic, ReportTopic | str):
            raise wrong_type("topic", "a text, such as 'reports-e1-p8'", topic)
        self._broker = Broker(broker) if isinstance(broker, str) else broker
        self._topic = ReportTopic.parse(topic) if isinstance(topic, str) else topic
        self._timeout = seconds_of("timeout", timeout, 0.5, 600)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._connections = Connections()
        self._pending: deque[_Sent] = deque()
        self._held = 0
        # Threads with messages that no sync can confirm: their next one fails.
        self._lost: set[int] = set()
        lifecycle.watch_forks(self)

    @classmethod
    def from_url(cls, url: str) -> KafkaPublisher:
        """Return the publisher to ``kafka://host:port/topic``; errors as of Broker.from_url."""
        return cls(*Broker.from_url(url))

    def publish(self, shard: int, message: bytes) -> None:
        """Hand a message to the producer of its pseudonym; it is safe once :meth:`sync` returns."""
        self._check_process()
        start = time.monotonic()
        pseudonym = pseudonym_in(message)
        connection, leaving = self._connections.take(pseudonym, start + self._timeout * 2 / 3)
        try:
            if leaving is not None:
                self._retire(leaving, start + self._timeout * 2 / 3)
            self._send(connection, shard, message, start)
        finally:
            self._connections.give_back(connection)

    def sync(self) -> None:
        """Wait until the broker has acknowledged what was published, or raise PublishError."""
        self._check_process()
        deadline = time.monotonic() + self._timeout
        with self._lock:
            sent = tuple(self._pending)
        failed = _wait_for(sent, deadline)
        hint = None
        if failed is not None:
            error, connection = failed
            hint = throttled(connection.producer)
            # Messages that are not acknowledged by now, on whatever connection, come again.
            self._fail({one.connection for one in sent if not one.acknowledged})
        with self._lock:
            self._forget_acknowledged()
            lost = threading.get_ident() in self._lost
            self._lost.discard(threading.get_ident())
        if failed is not None:
            raise _unacknowledged(error, hint) from error
        if lost:
            raise PublishError("messages before a fault of the broker may not have reached it")

    def close(self) -> None:
        """Do what :meth:`sync` does, and disconnect, also where that raises."""
        try:
            self.sync()
        finally:
            known = self._connections.clear()
            with self._lock:
                # Other threads may have published since.
                self._report_loss()
            for connection in known:
                connection.end()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._report_loss()
        self._process = os.getpid()
        self._connections.leave()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self.after_fork_in_child()

    def _send(self, connection: Connection, shard: int, message: bytes, start: float) -> None:
        from kafka.errors import KafkaError

        producer = connection.connected(self._make, start + self._timeout * 2 / 3)
        self._wait_for_room(len(message), start + self._timeout)
        try:
            future = producer.send(
                str(self._topic),
                value=message,
                partition=self._topic.partition(shard),
                timestamp_ms=_NO_TIME,
            )
        except (KafkaError, ValueError) as error:
            hint = throttled(producer)
            self._fail({connection})
            raise _unacknowledged(error, hint) from error
        with self._lock:
            if connection.producer is not producer:
                raise PublishError("the connection was given up meanwhile")
            thread = threading.get_ident()
            self._pending.append(_Sent(thread, len(message), future, connection))
            self._held += len(message)

    def _make(self) -> KafkaProducer:
        return make_producer(self._broker, self._topic, self._timeout)

    def _retire(self, connection: Connection, deadline: float) -> None:
        """End a connection that makes room, once what it has sent is acknowledged."""
        with self._lock:
            sent = tuple(one for one in self._pending if one.connection is connection)
        _wait_for(sent, deadline)
        with self._lock:
            self._report_loss({connection})
        _end_soon(connection)

    def _wait_for_room(self, size: int, deadline: float) -> None:
        while True:
            with self._lock:
                self._forget_acknowledged()
                if not self._pending or self._held + size <= IN_FLIGHT_BYTES:
                    return
                oldest = self._pending[0]
            failed = _wait_for((oldest,), deadline)
            if failed is not None:
                hint = throttled(oldest.connection.producer)
                self._fail({oldest.connection})
                raise _unacknowledged(failed[0], hint) from failed[0]

    def _forget_acknowledged(self) -> None:
        while self._pending and self._pending[0].acknowledged:
            self._held -= self._pending.popleft().size

    def _report_loss(self, connections: Collection[Connection] | None = None) -> None:
        """Forget what was sent through connections, or all; ``sync`` fails for who sent it."""
        kept: deque[_Sent] = deque()
        for sent in self._pending:
            if connections is not None and sent.connection not in connections:
                kept.append(sent)
            elif not sent.acknowledged:
                self._lost.add(sent.thread)
        self._pending = kept
        self._held = sum(sent.size for sent in kept)

    def _fail(self, connections: Collection[Connection]) -> None:
        for connection in connections:
            if self._connections.forget(connection):
                _end_soon(connection)
        with self._lock:
            self._report_loss(connections)


def _end_soon(connection: Connection) -> None:
    """End a connection, which takes up to a second, in a thread of its own."""
    if lifecycle.exiting():
        # A thread that begins while the interpreter ends can crash the process.
        connection.end()
    else:
        threading.Thread(target=connection.end, name="sotto-kafka-discard", daemon=True).start()


def _wait_for(sent: tuple[_Sent, ...], deadline: float) -> tuple[KafkaError, Connection] | None:
    """Wait until messages are acknowledged; return why and where the first of them was not."""
    from kafka.errors import KafkaError

    for one in sent:
        try:
            one.future.get(timeout=max(0.0, deadline - time.monotonic()))
        except KafkaError as error:
            return error, one.connection
    return None


def _unacknowledged(error: Exception, hint: float | None) -> PublishError:
    from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

    if isinstance(error, KafkaTimeoutError):
        return PublishError("the broker did not acknowledge in time", retry_after=hint)
    if isinstance(error, MessageSizeTooLargeError):
        return PublishError("the broker refuses a message as too large: raise max.message.bytes")
    return PublishError(f"the broker did not take a message ({type(error).__name__})")
