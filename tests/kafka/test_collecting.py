"""The collector before a real broker: what is stored joins nothing, and an outage is a 503."""

from __future__ import annotations

import pytest
from live_collector import LiveCollector, body, message, request
from test_stored_messages import stored
from waiting import wait_until

from sotto.kafka.topics import ReportTopic
from sotto.wire.format import pseudonym_of

pytestmark = pytest.mark.slow


@pytest.fixture
def collector(broker, topic, tmp_path):
    options = "--kafka", broker.servers, "--topic", str(topic), "--hold", "1"
    with LiveCollector(tmp_path, *options) as collector:
        yield collector


def test_stored_batches_show_no_more_than_one_hold(local, topic, collector):
    """Messages of one connection are shuffled among all that came within the hold."""
    mine = [message(shard=0) for _ in range(14)]
    others = [message(shard=0) for _ in range(60)]
    # So that the first group, for which the producer connects, is over.
    first = body(message(shard=1))
    wait_until(lambda: collector.post(first) == 204)
    senders = [collector.connect() for _ in range(3)]
    for connection, part in zip(senders, (others[:30], mine, others[30:]), strict=True):
        connection.sendall(request(body(*part)))
    for connection in senders:
        assert connection.recv(100).startswith(b"HTTP/1.1 204")
        connection.close()
    batches = stored(local.folder, topic)
    # All devices share one producer: its number says nothing of any.
    assert len({batch.producer_id for batch, _ in batches}) == 1
    for batch, records in batches:
        assert all((record.key, record.headers) == (None, []) for record in records)
        assert {batch.first_timestamp, *(record.timestamp for record in records)} == {0}
    values = [record.value for _, records in batches for record in records]
    assert len({*map(pseudonym_of, values)}) == 75
    # In order and side by side they are with a probability of 1/14! or less.
    places = [values.index(each) for each in mine]
    assert places != list(range(places[0], places[0] + 14))


def test_an_outage_is_a_503_and_nothing_is_lost(local, topic, collector):
    sent = [message(shard) for shard in range(3)]
    wait_until(lambda: collector.post(body(sent[0])) == 204)
    local.stop()
    assert collector.post(body(sent[1])) == 503
    local.start()
    wait_until(lambda: collector.post(body(sent[1])) == 204)
    wait_until(lambda: collector.post(body(sent[2])) == 204)
    assert "messages are taken again" in collector.output()
    assert collector.stop() == 0
    values = [record.value for _, records in stored(local.folder, topic) for record in records]
    # A message that was answered 503 may be there twice, and counts once.
    assert set(values) == set(sent)


def test_a_topic_that_is_none_is_a_503(broker, tmp_path):
    options = "--kafka", broker.servers, "--topic", str(ReportTopic("none", 1, 4))
    with LiveCollector(tmp_path, *options) as collector:
        assert collector.post(body()) == 503
        assert "the broker knows no topic none-e1-p4" in collector.output()
