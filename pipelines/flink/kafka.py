"""Kafka as Flink's connector is told of it: properties and tables of raw bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipelines.flink.orders import Order
from sotto.brokers import Broker
from sotto.sinktopics import MAX_DOCUMENT
from sotto.wire import MAX_MESSAGE

#: How long the sinks try before the job fails and is restarted, ms.
DELIVERY_MS = 120_000
_DISCOVERY = "30 s"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def properties(broker: Broker) -> dict[str, str]:
    """Return how to reach a broker, as Kafka's Java client takes it.

    Files are read here: the machines that run the job need not have them.
    """
    says = {"bootstrap.servers": broker.servers.replace(" ", "")}
    if broker.encrypted:
        says["security.protocol"] = "SSL" if broker.user is None else "SASL_SSL"
    if broker.ca is not None:
        says["ssl.truststore.type"] = "PEM"
        says["ssl.truststore.certificates"] = Path(broker.ca).read_text("ascii")
    if broker.certificate is not None and broker.key is not None:
        says["ssl.keystore.type"] = "PEM"
        says["ssl.keystore.certificate.chain"] = Path(broker.certificate).read_text("ascii")
        says["ssl.keystore.key"] = Path(broker.key).read_text("ascii")
    if broker.user is not None and broker.password is not None:
        says["sasl.mechanism"] = broker.mechanism
        user, password = _quoted(broker.user), _quoted(broker.password)
        says["sasl.jaas.config"] = f"{_SCRAM} required username={user} password={password};"
    return says


def source_table(order: Order, broker: Broker) -> str:
    """Return the statement that declares the topics that are read.

    A message without a value is read as an empty one. A job that has no state of a topic reads it
    from the offsets that its group begins with; later those of the checkpoint count, and the
    group's are for people to look at.
    """
    topics = [*order.work.topics, *([order.work.requeue] if order.work.requeue else [])]
    options = {
        "connector": "kafka",
        "topic": ";".join(topics),
        "scan.startup.mode": "group-offsets",
        "scan.topic-partition-discovery.interval": _DISCOVERY,
        "format": "raw",
        **_prefixed(properties(broker)),
        "properties.group.id": order.name,
        "properties.client.id.prefix": order.name,
        "properties.isolation.level": "read_committed",
        "properties.commit.offsets.on.checkpoint": "true",
        # An offset that is gone stops the job, and does not make it begin anywhere else.
        "properties.auto.offset.reset": "none",
    }
    columns = """
        body BYTES,
        topic STRING NOT NULL METADATA VIRTUAL,
        part INT NOT NULL METADATA FROM 'partition' VIRTUAL,
        place BIGINT NOT NULL METADATA FROM 'offset' VIRTUAL,
        moment TIMESTAMP_LTZ(3) NOT NULL METADATA FROM 'timestamp' VIRTUAL,
        kind STRING NOT NULL METADATA FROM 'timestamp-type' VIRTUAL,
        taken AS PROCTIME()
    """
    return f"CREATE TABLE arrivals ({columns}) WITH ({_with(options)})"


#: Of a message that is too long so much is kept as shows that.
RECORDS = f"""
    CREATE TEMPORARY VIEW records AS SELECT
        topic || '/' || CAST(part AS STRING) AS lane,
        place,
        EXTRACT(EPOCH FROM moment) * 1000 + EXTRACT(MILLISECOND FROM moment) AS moment,
        kind = 'LogAppendTime' AS appended,
        CAST(CAST(COALESCE(body, X'') AS VARBINARY({MAX_MESSAGE + 1})) AS BYTES) AS body,
        taken
    FROM arrivals
"""
#: A lane's records of a fifth of a second: offsets, timestamps in ms, whether the broker made
#: them, messages. Python is given them together, since each element that it is given costs more
#: than what is done with a record. This is a group window, and no window of a table function:
#: what gathers for those forgets what comes after its clock was set back, and cannot hold a
#: record that is larger than its buffer.
BATCHES = """
    SELECT lane, ARRAY_AGG(place), ARRAY_AGG(moment), ARRAY_AGG(appended), ARRAY_AGG(body)
    FROM records
    GROUP BY lane, TUMBLE(taken, INTERVAL '0.2' SECOND)
"""
#: What stands in the place of these in a tick.
NO_RECORDS = """
    CAST(NULL AS ARRAY<BIGINT NOT NULL>), CAST(NULL AS ARRAY<BIGINT NOT NULL>),
    CAST(NULL AS ARRAY<BOOLEAN NOT NULL>), CAST(NULL AS ARRAY<BYTES NOT NULL>)
"""


def sink_table(order: Order, broker: Broker, name: str, topic: str, *, headers: bool) -> str:
    """Return the statement that declares a topic that is written, at least once.

    Parameters
    ----------
    order : Order
    broker : Broker
    name : str
        Of the table.
    topic : str
    headers : bool
        Whether its records have headers.
    """
    more = ", headers MAP<STRING NOT NULL, BYTES> METADATA" if headers else ""
    options = {
        "connector": "kafka",
        "topic": topic,
        "key.format": "raw",
        "key.fields": "name",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
        "sink.delivery-guarantee": "at-least-once",
        **_prefixed(properties(broker)),
        "properties.client.id": f"{order.name}-{name}",
        "properties.acks": "all",
        "properties.compression.type": "zstd",
        "properties.max.request.size": str(MAX_DOCUMENT),
        "properties.delivery.timeout.ms": str(DELIVERY_MS),
    }
    return f"CREATE TABLE {name} (name BYTES, body BYTES{more}) WITH ({_with(options)})"


def _prefixed(says: Mapping[str, str]) -> dict[str, str]:
    return {f"properties.{name}": value for name, value in says.items()}


def _with(options: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(name)} = {_text(value)}" for name, value in options.items())


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
