"""Sends messages to a Kafka topic."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from clientsdk import forks
from clientsdk.producing import Connecting, abandon, discard, make_producer, throttled
from sotto.brokers import Broker, require_client
from sotto.errors import ParameterError, PublishError
from sotto.topics import ReportTopic

if TYPE_CHECKING:
    from kafka import KafkaProducer
    from kafka.producer.future import FutureRecordMetadata

COMPRESSIONS = ("zstd", "gzip", None)
#: Bytes sent and not acknowledged; who publishes more waits.
IN_FLIGHT_BYTES = 16 << 20


class _Sent(NamedTuple):
    """A message that the broker may not have acknowledged yet, and who sent it."""

    thread: int
    size: int
    future: FutureRecordMetadata

    @property
    def acknowledged(self) -> bool:
        return bool(self.future.succeeded())


class KafkaPublisher:
    """Sends each message to the partition of its shard, and has it acknowledged by all replicas.

    The extra ``kafka`` is needed. What the broker does not acknowledge in time is an error: the
    client keeps those reports and sends the same bytes again, so that a broker that is dead, slow
    or full delays reports and loses none. Nothing is connected before the first message; after a
    failure the next message connects anew, and a process forked from this one has connections of
    its own. Where a message was late since the broker slows this client down (a quota), it is not
    tried again for as long as the broker has asked for.

    Parameters
    ----------
    broker : Broker or str
        How to reach the cluster; ``"host:port"`` is one in the clear.
    topic : ReportTopic or str
        The full name, such as ``"reports-e1-p8"``, as ``sotto topics create`` says it.
    timeout : float, in [0.5, 600]
        Seconds that any call may take at most. Long enough for the broker to answer: what it
        takes and acknowledges too late is sent again, and counted once.
    compression : {"zstd", "gzip", None}

    Raises
    ------
    ParameterError
        One of these is not as it should be.
    ModuleNotFoundError
        kafka-python is not installed.
    """

    def __init__(
        self,
        broker: Broker | str,
        topic: ReportTopic | str,
        *,
        timeout: float = 10.0,
        compression: str | None = "zstd",
    ) -> None:
        if not 0.5 <= timeout <= 600:
            raise ParameterError(f"timeout {timeout} must be in [0.5, 600] seconds")
        if compression not in COMPRESSIONS:
            raise ParameterError(f"compression {compression!r} must be 'zstd', 'gzip' or None")
        # Not at first use: a fork amid an import in another thread leaves the child without it.
        require_client()
        self._broker = Broker(broker) if isinstance(broker, str) else broker
        self._topic = ReportTopic.parse(topic) if isinstance(topic, str) else topic
        self._timeout = timeout
        self._compression = compression
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._connecting: Connecting | None = None
        self._producer: KafkaProducer | None = None
        self._pending: deque[_Sent] = deque()
        self._held = 0
        # Threads with messages that no sync will vouch for: their next one fails.
        self._doubtful: set[int] = set()
        forks.watch(self)

    def publish(self, shard: int, message: bytes) -> None:
        """Hand a message to the producer; it is safe once :meth:`sync` returns.

        Raises
        ------
        PublishError
            The broker cannot be reached, or too much waits for it.
        """
        from kafka.errors import KafkaError

        self._check_process()
        start = time.monotonic()
        producer = self._connected(start + self._timeout * 2 / 3)
        self._wait_for_room(producer, len(message), start + self._timeout)
        try:
            future = producer.send(
                str(self._topic), value=message, partition=self._topic.partition(shard)
            )
        except (KafkaError, ValueError) as error:
            self._fail(producer)
            raise _unacknowledged(error, producer) from error
        with self._lock:
            if self._producer is not producer:
                raise PublishError("the connection was given up meanwhile")
            self._pending.append(_Sent(threading.get_ident(), len(message), future))
            self._held += len(message)

    def sync(self) -> None:
        """Wait until the broker has acknowledged what was published.

        Raises
        ------
        PublishError
            It has not, or something that this thread published before may be lost.
        """
        self._check_process()
        deadline = time.monotonic() + self._timeout
        with self._lock:
            producer, sent = self._producer, tuple(self._pending)
        error = _wait_for(sent, deadline)
        if error is not None:
            self._fail(producer)
        with self._lock:
            self._forget_acknowledged()
            doubtful = threading.get_ident() in self._doubtful
            self._doubtful.discard(threading.get_ident())
        if error is not None:
            raise _unacknowledged(error, producer) from error
        if doubtful:
            raise PublishError("messages before a fault of the broker may not have reached it")

    def close(self) -> None:
        """Wait until the broker has acknowledged what was published, and disconnect.

        Raises
        ------
        PublishError
            It has not; it is disconnected all the same.
        """
        try:
            self.sync()
        finally:
            with self._lock:
                producer, self._producer = self._producer, None
                connecting, self._connecting = self._connecting, None
                # Other threads may have published since.
                self._doubt()
            if connecting is not None:
                connecting.cancel()
            if producer is not None:
                discard(producer)

    def before_fork(self) -> None:
        """Do nothing: the parent keeps its connections."""

    def after_fork_in_parent(self) -> None:
        """Do nothing."""

    def after_fork_in_child(self) -> None:
        """Leave all connections to the parent; what it sent is its own to wait for."""
        self._lock = threading.Lock()
        self._doubt()
        producer, self._producer = self._producer, None
        connecting, self._connecting = self._connecting, None
        self._process = os.getpid()
        if producer is not None:
            abandon(producer)
        if connecting is not None:
            connecting.abandon()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self.after_fork_in_child()

    def _connected(self, deadline: float) -> KafkaProducer:
        """Return the producer; at most one is in the making."""
        with self._lock:
            if self._producer is not None:
                return self._producer
            if self._connecting is None or self._connecting.failed:
                self._connecting = Connecting(
                    lambda: make_producer(
                        self._broker, self._topic, self._compression, self._timeout
                    )
                )
            connecting = self._connecting
        producer = connecting.wait(deadline - time.monotonic())
        with self._lock:
            if self._connecting is connecting:
                self._producer, self._connecting = producer, None
            if self._producer is not producer:
                raise PublishError("the connection was given up meanwhile")
        return producer

    def _wait_for_room(self, producer: KafkaProducer, size: int, deadline: float) -> None:
        while True:
            with self._lock:
                self._forget_acknowledged()
                if not self._pending or self._held + size <= IN_FLIGHT_BYTES:
                    return
                oldest = self._pending[0]
            error = _wait_for((oldest,), deadline)
            if error is not None:
                self._fail(producer)
                raise _unacknowledged(error, producer) from error

    def _forget_acknowledged(self) -> None:
        while self._pending and self._pending[0].acknowledged:
            self._held -= self._pending.popleft().size

    def _doubt(self) -> None:
        """Forget what is not acknowledged; who sent it learns of that from ``sync``."""
        self._doubtful.update(sent.thread for sent in self._pending if not sent.acknowledged)
        self._pending.clear()
        self._held = 0

    def _fail(self, producer: KafkaProducer | None) -> None:
        """Give a producer up, with all that it holds; its threads learn of that from ``sync``."""
        with self._lock:
            if producer is None or self._producer is not producer:
                return
            self._producer = None
            self._doubt()
        threading.Thread(
            target=discard, args=(producer,), name="sotto-kafka-discard", daemon=True
        ).start()


def _wait_for(sent: tuple[_Sent, ...], deadline: float) -> Exception | None:
    """Wait until messages are acknowledged; return why the first of them was not."""
    from kafka.errors import KafkaError

    try:
        for one in sent:
            one.future.get(timeout=max(0.0, deadline - time.monotonic()))
    except KafkaError as error:
        failure: Exception = error
        return failure
    return None


def _unacknowledged(error: Exception, producer: KafkaProducer | None) -> PublishError:
    from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

    if isinstance(error, KafkaTimeoutError):
        return PublishError(
            "the broker did not acknowledge in time", retry_after=throttled(producer)
        )
    if isinstance(error, MessageSizeTooLargeError):
        return PublishError("the broker finds a message too large: raise max.message.bytes")
    return PublishError(f"the broker did not take a message ({type(error).__name__})")
