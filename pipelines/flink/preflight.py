"""What is looked at before a job is submitted: topics, plans, offsets; and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipelines.flink.rest import FlinkError
from sotto.brokers import Broker, make_client, require_client
from sotto.errors import BrokerError, ParameterError
from sotto.registry import Registry
from sotto.sinktopics import SinkTopic, Stay
from sotto.topicadmin import PATIENCE, Topics, connected
from sotto.topics import FoundTopic, ReportTopic

if TYPE_CHECKING:
    from kafka import KafkaConsumer, TopicPartition


def check_topics(
    broker: Broker, topics: Sequence[ReportTopic], registry: Registry
) -> Mapping[str, FoundTopic]:
    """Return what the broker says of each topic that the job reads.

    Raises
    ------
    BrokerError
        One is missing or cannot be used, or the broker is too old; all of that, a line each.
    ParameterError
        The topics are not epochs of one name.
    """
    name = one_name(topics)
    stay = stay_of(registry)
    with connected(broker) as found:
        read = {str(topic): found.check(topic, registry.horizon) for topic in topics}
        for kind in ("estimates", "quarantine"):
            found.check_sink(SinkTopic(name, kind), stay)
        read |= _requeue(found, SinkTopic(name, "requeue"), stay)
    return read


def check_same(known: Mapping[str, str], topics: Mapping[str, FoundTopic]) -> None:
    """Return if none of the topics was deleted and made again since their ids were noted.

    Raises
    ------
    FlinkError
        One was: the offsets in the job's state are of records that are gone.
    """
    for name, found in topics.items():
        if known.get(name, found.id) != found.id:
            raise FlinkError(
                f"topic {name} was deleted and made again since the job ran: the job would go on "
                "behind records that it has never read. Go on with another job folder, which "
                "counts what is there"
            )


def one_name(topics: Sequence[ReportTopic]) -> str:
    """Return the name that topics are epochs of.

    Raises
    ------
    ParameterError
        There are several, or no topic.
    """
    names = sorted({topic.name for topic in topics})
    if len(names) != 1:
        raise ParameterError(
            f"topics must be epochs of one name, not of {', '.join(names) or 'none'}: "
            "each name has a job of its own"
        )
    return names[0]


def stay_of(registry: Registry) -> Stay:
    """Return how long the plans have things stay."""
    return Stay(registry.horizon, max(plan.retention for plan in registry.plans))


def begin(broker: Broker, group: str, partitions: Mapping[str, int], *, anew: bool) -> None:
    """Have a group begin at the first record of every partition in which it has no offset.

    A job without state of a partition goes by these offsets alone: one that it cannot find stops
    it, where a rule such as "else at the first record" would pass over what has been deleted.

    Parameters
    ----------
    broker : Broker
    group : str
    partitions : mapping
        Numbers of partitions by topic.
    anew : bool
        Whether the job has no state at all, and offsets of the group mean nothing.

    Raises
    ------
    FlinkError
        Records that have not been counted are gone.
    """
    require_client()
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    wanted = [TopicPartition(topic, at) for topic, most in partitions.items() for at in range(most)]
    consumer: KafkaConsumer = make_client(
        KafkaConsumer, broker, PATIENCE, group_id=group, enable_auto_commit=False
    )
    try:
        first = consumer.beginning_offsets(wanted)
        known = {} if anew else _committed(consumer, wanted)
        for each, offset in known.items():
            if offset < first[each]:
                raise FlinkError(
                    f"{each.topic}/{each.partition} begins at offset {first[each]}, and the job's "
                    f"last checkpoint with committed offsets is at {offset}: records were deleted "
                    "before they were counted; retention is too short, or the job stood too long. "
                    "Go on with another job folder, which counts what is there"
                )
        new = {each: offset for each, offset in first.items() if each not in known}
        if new:
            consumer.assign(list(new))
            consumer.commit({each: OffsetAndMetadata(at, "", -1) for each, at in new.items()})
    finally:
        consumer.close(autocommit=False)


def _committed(
    consumer: KafkaConsumer, wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    found = {each: consumer.committed(each) for each in wanted}
    return {each: int(offset) for each, offset in found.items() if offset is not None}


def _requeue(found: Topics, topic: SinkTopic, stay: Stay) -> dict[str, FoundTopic]:
    """Return what the broker says of the topic of what is given back, if there is one."""
    try:
        found.find_sink(topic)
    except BrokerError:
        return {}
    return {str(topic): found.check_sink(topic, stay)}
