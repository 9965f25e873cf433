"""Producers of kafka-python: every record acknowledged by all replicas, made and ended in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker, make_client, require_version
from sotto.kafka.topics import ReportTopic

if TYPE_CHECKING:
    from kafka import KafkaProducer

#: None only in tests, which read or measure what is sent.
COMPRESSION: str | None = "zstd"
#: How long a producer that is thrown away may take to end, in seconds.
_ENDING = 1.0


def make_producer(
    broker: Broker,
    seconds: float,
    *,
    batch: int,
    largest: int,
    measured: bool = False,
    **options: object,
) -> KafkaProducer:
    """Return a producer that is connected, an idempotent one unless ``options`` say otherwise.

    Raises BrokerError if the broker cannot be reached, does not let us in, or is too old.

    Parameters
    ----------
    seconds : float
        Within which a record is acknowledged or given up. No step of making the producer takes
        more than a third of it.
    batch, largest : int
        Bytes up to which records of one partition go together, and that one request may have.
    measured : bool
        Whether the producer keeps figures about itself.
    **options
        As ``KafkaProducer`` takes them; they take the place of what is chosen here.
    """
    from kafka import KafkaProducer

    from sotto.kafka.client_internals import disable_exit_hook

    chosen: dict[str, object] = {
        "client_id": "sotto",
        "acks": "all",
        "enable_idempotence": True,
        "compression_type": COMPRESSION,
        "allow_auto_create_topics": False,
        "batch_size": batch,
        "max_request_size": largest,
        "max_block_ms": int(seconds * 1000 / 3),
        "request_timeout_ms": int(seconds * 500),
        "delivery_timeout_ms": int(seconds * 1000),
        "metrics_enabled": measured,
    }
    producer = make_client(KafkaProducer, broker, seconds / 3, **(chosen | options))
    disable_exit_hook(producer)
    try:
        if broker.api_version is None:
            require_version(producer.config["api_version"])
    except BaseException:
        end_producer(producer)
        raise
    return producer


def require_partitions(producer: KafkaProducer, topic: ReportTopic) -> None:
    """Raise BrokerError unless the topic exists and has the partitions that its name says."""
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


def end_producer(producer: KafkaProducer, seconds: float = _ENDING) -> None:
    """Drop what a producer holds and end its thread, within so many seconds."""
    from sotto.kafka.client_internals import close_at_once

    close_at_once(producer, seconds)
