"""The topics of a cluster: found, checked and created."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sotto.errors import BrokerError, ParameterError
from sotto.kafka.access import Grant, acl
from sotto.kafka.brokers import Broker, make_client, require_client, require_version
from sotto.kafka.topics import FoundTopic, ReportTopic, SinkTopic, Stay

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

#: How long a broker may take to answer anything, in seconds.
PATIENCE = 10.0
_PATIENCE_MS = int(PATIENCE * 1000)


class TopicAdmin:
    """The topics of a cluster. Make it with :func:`connected`."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def epochs(self, name: str) -> tuple[ReportTopic, ...]:
        """Return the topics of reports called ``name``, oldest epoch first."""
        found = []
        for text in self._admin.list_topics():
            try:
                topic = ReportTopic.parse(text)
            except ParameterError:
                continue
            if topic.name == name:
                found.append(topic)
        return tuple(sorted(found, key=lambda topic: (topic.epoch, topic.partitions)))

    def require(self, topic: ReportTopic | SinkTopic) -> None:
        """Raise BrokerError if a topic does not exist; who may only write to it may ask."""
        if str(topic) not in self._admin.list_topics():
            sink = isinstance(topic, SinkTopic)
            others = "" if sink else ", ".join(map(str, self.epochs(topic.name)))
            there = f"; there are {others}" if others else ""
            how = f"{topic.name} --sinks" if sink else topic.name
            raise BrokerError(
                f"there is no topic {topic}{there}: create it with sotto topics create {how}, "
                "correct the name, or take a user who may see it"
            )

    def find(self, topic: ReportTopic | SinkTopic) -> FoundTopic:
        """Return the description of a topic; raises BrokerError if it does not exist.

        It has no settings if this user may not read them: who reads a topic needs only its size.
        """
        from kafka.admin import ConfigResource, ConfigResourceType

        self.require(topic)
        name = str(topic)
        (described,) = self._admin.describe_topics([name])
        resources = [ConfigResource(ConfigResourceType.TOPIC, name)]
        answer = self._admin.describe_configs(resources, config_filter="all")
        settings: dict[str, dict[str, Any]] = answer["topic"][name]
        return FoundTopic(
            partitions=len(described["partitions"]),
            replicas=min(len(part["replica_nodes"]) for part in described["partitions"]),
            settings={name: str(setting["value"]) for name, setting in settings.items()},
            id=str(described["topic_id"]),
        )

    def id_of(self, topic: str) -> str:
        """Return the id that the broker gave a topic; empty if there is none of this name."""
        if topic not in self._admin.list_topics():
            return ""
        (described,) = self._admin.describe_topics([topic])
        return str(described["topic_id"])

    def check(self, topic: ReportTopic, horizon: int, *, reading: bool = False) -> FoundTopic:
        """Return the description of a topic that can be used (:meth:`ReportTopic.faults`).

        Raises BrokerError if it does not exist, this user may not read its settings, or it cannot
        be used: all reasons, a line each.
        """
        found = self.find(topic)
        return _usable(topic, found, topic.faults(found, horizon, reading=reading))

    def check_sink(self, topic: SinkTopic, stay: Stay) -> FoundTopic:
        """Do as :meth:`check` for a topic beside those of reports."""
        found = self.find(topic)
        return _usable(topic, found, topic.faults(found, stay))

    def create_sink(self, topic: SinkTopic, partitions: int, replicas: int, stay: Stay) -> bool:
        """Create a topic beside those of reports; False if it exists already.

        Raises BrokerError if the broker refuses.
        """
        if str(topic) in self._admin.list_topics():
            return False
        self._make(str(topic), partitions, replicas, topic.settings(stay))
        return True

    def create(self, topic: ReportTopic, replicas: int, retention: int) -> bool:
        """Create a topic whose records stay for so many milliseconds; False if it exists already.

        More than half of the replicas confirm each message. Raises BrokerError if this epoch has
        another number of partitions, a newer epoch is there, or the broker refuses.
        """
        known = self.epochs(topic.name)
        if topic in known:
            return False
        for other in known:
            if other.epoch >= topic.epoch:
                raise BrokerError(
                    f"{other} is there already: the number of partitions changes with a new "
                    f"epoch alone; aggregate it, then create epoch {known[-1].epoch + 1}"
                )
        self._make(str(topic), topic.partitions, replicas, topic.settings(retention))
        return True

    def allow(self, wanted: tuple[Grant, ...]) -> None:
        """Have the cluster allow what is wanted; what it allows already stays as it is.

        Raises BrokerError if it has no authorizer, so that everybody may do everything, or refuses.
        """
        answer = self._admin.create_acls([acl(each) for each in wanted])
        if answer["failed"]:
            why = answer["failed"][0].__name__
            raise BrokerError(
                f"the broker does not take ACLs ({why}): it needs an authorizer "
                "(authorizer.class.name), and you the right to alter the cluster"
            )

    def _make(self, name: str, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        wanted = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": settings | {"min.insync.replicas": str(replicas // 2 + 1)},
        }
        answer = self._admin.create_topics(
            {name: wanted}, timeout_ms=_PATIENCE_MS, raise_errors=False
        )
        (made,) = answer["topics"]
        if made["error_code"]:
            raise BrokerError(
                f"topic {name} was not created; the broker answered: "
                f"{made['error_message'] or 'error ' + str(made['error_code'])}"
            )
        self._admin.wait_for_topics([name], timeout_ms=_PATIENCE_MS)


def _usable(topic: ReportTopic | SinkTopic, found: FoundTopic, faults: list[str]) -> FoundTopic:
    if not found.settings:
        raise BrokerError(f"topic {topic}: this user may not read its settings: take another")
    if faults:
        raise BrokerError("\n".join(f"topic {topic}: {fault}" for fault in faults))
    return found


@contextmanager
def connected(broker: Broker) -> Iterator[TopicAdmin]:
    """Connect to a cluster, for a while.

    If no broker answers, or lets us in, or it is too old, BrokerError says what to do.
    """
    require_client()
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    admin = make_client(
        KafkaAdminClient, broker, PATIENCE, client_id="sotto", request_timeout_ms=_PATIENCE_MS
    )
    try:
        if broker.api_version is None:
            node = admin.describe_cluster()["brokers"][0]["broker_id"]
            require_version(admin.get_broker_version_data(node).broker_version)
        yield TopicAdmin(admin)
    except KafkaError as error:
        raise BrokerError(f"the broker does not do what it is asked: {error}") from error
    finally:
        admin.close()
