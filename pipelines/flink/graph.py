"""The job's graph: Kafka and ticks, three keyed operators, Kafka.

Tables are used for reading and writing alone, since they carry raw bytes with a record's offset,
timestamp and headers. Every operator has an identity of its own, by which savepoints find it:
changing one makes savepoints from before useless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

from pipelines.flink.kafka import BATCHES, NO_RECORDS, RECORDS, sink_table, source_table
from pipelines.flink.operators import ADDRESS, LETTER, RECORD, Lanes, Shards, Sums, address
from pipelines.flink.orders import Order
from pipelines.flink.settings import settings
from pipelines.streaming.letters import Port
from sotto.brokers import Broker

_ENVIRONMENT = "org.apache.flink.streaming.api.environment.StreamExecutionEnvironment"
_PHYSICAL = "org.apache.flink.streaming.api.transformations.PhysicalTransformation"
_TICKS = (
    "CREATE TABLE ticks (n INT) WITH "
    "('connector' = 'datagen', 'rows-per-second' = '1', 'scan.parallelism' = '1', "
    "'fields.n.min' = '0')"
)


def submit(order: Order) -> str:
    """Give a job to Flink and return the id that Flink knows it by."""
    configuration = Configuration()
    for name, value in settings(order).items():
        configuration.set_string(name, value)
    # What Python's own factory makes would start a cluster of its own here.
    made = get_gateway().jvm
    for part in _ENVIRONMENT.split("."):
        made = getattr(made, part)
    environment = StreamExecutionEnvironment(made(configuration._j_configuration))
    build(environment, order, Broker.from_file(order.broker))
    return str(environment.execute_async(order.name).get_job_id())


def build(environment: StreamExecutionEnvironment, order: Order, broker: Broker) -> None:
    """Put a job's graph into an environment."""
    tables = StreamTableEnvironment.create(environment)
    letters = _arrivals(tables, order, broker)
    kept = (("lanes", Lanes, LETTER), ("shards", Shards, LETTER), ("sums", Sums, RECORD))
    for name, operator, kind in kept:
        if name == "lanes":
            keyed = letters.key_by(lambda record: record[0], key_type=Types.STRING())
        else:
            keyed = letters.key_by(address, key_type=ADDRESS)
        letters = keyed.process(operator(order.work), output_type=kind).name(name).uid(name)
    _write(tables, letters, order, broker)
    _identify(environment)


def _arrivals(tables: StreamTableEnvironment, order: Order, broker: Broker) -> DataStream:
    tables.execute_sql(source_table(order, broker))
    tables.execute_sql(RECORDS)
    tables.execute_sql(_TICKS)
    lanes = ", ".join(f"'{lane}'" for lane in order.work.deployment().lanes)
    ticked = (
        f"SELECT lane, {NO_RECORDS} "
        # Of a constant array Flink would make a join, which keeps all ticks.
        f"FROM ticks CROSS JOIN UNNEST(CASE WHEN n >= 0 THEN ARRAY[{lanes}] END) AS named (lane)"
    )
    return tables.to_data_stream(tables.sql_query(f"{BATCHES} UNION ALL {ticked}"))


def _write(
    tables: StreamTableEnvironment, records: DataStream, order: Order, broker: Broker
) -> None:
    tables.create_temporary_view("outgoing", tables.from_data_stream(records))
    statements = tables.create_statement_set()
    for name, topic, port, columns in (
        ("estimates", order.estimates, Port.DOCUMENTS, "name, body"),
        ("quarantine", order.quarantine, Port.QUARANTINE, "name, body, headers"),
    ):
        headers = port == Port.QUARANTINE
        tables.execute_sql(sink_table(order, broker, name, topic, headers=headers))
        statements.add_insert_sql(
            f"INSERT INTO {name} SELECT {columns} FROM outgoing WHERE port = {int(port)}"
        )
    statements.attach_as_datastream()


def _identify(environment: StreamExecutionEnvironment) -> None:
    """Give an identity to what has none: sources, sinks, and what is between tables and streams."""
    for number, each in enumerate(_transformations(environment)):
        if each.getUid() is None:
            each.setUid(f"part-{number}")


def _transformations(environment: StreamExecutionEnvironment) -> Iterator[Any]:
    """Yield all that does something, what is read before what reads it, always in one order."""
    physical = get_gateway().jvm.java.lang.Class.forName(
        _PHYSICAL, False, get_gateway().jvm.Thread.currentThread().getContextClassLoader()
    )
    seen = set()
    for end in environment._j_stream_execution_environment.getTransformations():
        for each in end.getTransitivePredecessors():
            if each.getId() not in seen and physical.isInstance(each):
                seen.add(each.getId())
                yield each
