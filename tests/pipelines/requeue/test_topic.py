"""Messages that are given back to a streaming job, but that the broker does not take."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from report_logs import START
from requeued import BOTH
from step_plans import DAY

from pipelines.requeue import topic
from pipelines.requeue.topic import RequeueTopics
from pipelines.sinks import kafka
from pipelines.sinks.quarantine import CURABLE, Record, quarantine_record
from sotto.clocks import now_ms
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker
from sotto.wire.decode import Reject
from sotto.wire.format import HEADER, MAGIC
from sotto.wire.reasons import Reason


class Refusing:
    def __init__(self, error):
        self.error = error

    def send(self, *_, **__):
        raise self.error


@pytest.mark.parametrize("error", [MessageSizeTooLargeError, KafkaTimeoutError])
def test_the_topic_that_takes_nothing_is_named(monkeypatch, error):
    """A person has to know which of the two topics, read and written, to look at."""
    ended = []
    monkeypatch.setattr(kafka, "make_producer", lambda *_, **__: Refusing(error()))
    monkeypatch.setattr(kafka, "end_producer", ended.append)
    monkeypatch.setattr(topic, "plan_of", lambda _: BOTH[0].fingerprint)
    topics = RequeueTopics(Broker("localhost:9"), "reports", BOTH, [Reason.UNKNOWN_PLAN])
    waiting = iter([(Record(b"key", b"value", ()), 1)])
    monkeypatch.setattr(topics, "_curable", lambda *_: (each for each in waiting))
    with pytest.raises(BrokerError, match="reports-requeue"):
        topics.requeue(lambda *_: None)
    assert len(ended) == 1


def test_a_record_ahead_of_the_clock_is_given_back_once_it_is_not(monkeypatch):
    """Later, it waits where it is; a report that was ahead of its own record stays rejected."""
    message = HEADER.pack(MAGIC, 1, 0, 0, 1, BOTH[0].fingerprint)
    times = (START, START + 1, now_ms() + DAY)
    found = [Reject(Reason.FUTURE, message, time, rows) for time in times for rows in (0, 1)]
    records = [
        SimpleNamespace(**quarantine_record(each, "job")._asdict() | {"partition": 3, "offset": at})
        for at, each in enumerate(found)
    ]
    there = SimpleNamespace(partitions=1)
    brokers = SimpleNamespace(find=lambda _: there, check_sink=lambda *_: there)
    monkeypatch.setattr(topic, "connected", lambda _: nullcontext(brokers))
    topics = RequeueTopics(Broker("localhost:9"), "reports", BOTH, CURABLE)
    monkeypatch.setattr(
        topic, "read_to_end", lambda _, name, *__: records if name == str(topics.origin) else []
    )
    waiting = topics.waiting(lambda *_: None)
    assert waiting.waiting == {("future", BOTH[0].fingerprint_hex): 2}
    assert waiting.unreadable == 0
    given = [record.timestamp for record, _ in topics._curable(waiting, lambda *_: None)]
    assert given == [START, START + 1]
    records[0].value = None
    records[1].headers = ()
    records[2].offset, records[3] = 20, records[2]
    held = [(place, each.append) for place, each, _ in topic.held(*_given(topics))]
    assert held == [("3/0", START), ("3/20", START + 1), *((f"3/{at}", times[2]) for at in (4, 5))]


def _given(topics):
    return topics._broker, "reports", lambda *_: None
