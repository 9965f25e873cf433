"""What is given back to a streaming job, where the broker does not take it."""

from __future__ import annotations

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from requeued import BOTH

from pipelines.requeue import topic
from pipelines.requeue.topic import RequeueTopics
from pipelines.sinks import kafka
from pipelines.sinks.quarantine import Record
from sotto.errors import BrokerError
from sotto.kafka.brokers import Broker
from sotto.wire.reasons import Reason


class Refusing:
    def __init__(self, error):
        self.error = error

    def send(self, *_, **__):
        raise self.error


@pytest.mark.parametrize("error", [MessageSizeTooLargeError, KafkaTimeoutError])
def test_the_topic_that_takes_nothing_is_named(monkeypatch, error):
    """Of the two topics that are read and written, a person has to know which one to look at."""
    ended = []
    monkeypatch.setattr(kafka, "make_producer", lambda *_, **__: Refusing(error()))
    monkeypatch.setattr(kafka, "end_producer", ended.append)
    monkeypatch.setattr(topic, "plan_of", lambda _: BOTH[0].fingerprint)
    topics = RequeueTopics(Broker("localhost:9"), "reports", BOTH, [Reason.UNKNOWN_PLAN])
    waiting = iter([(Record(b"key", b"value", ()), 1)])
    monkeypatch.setattr(topics, "_curable", lambda *_: (each for each in waiting))
    with pytest.raises(BrokerError, match="for reports-requeue: do it again"):
        topics.requeue(lambda *_: None)
    assert len(ended) == 1
