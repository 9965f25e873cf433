"""The contract of publishers, held by each: what was published arrives unchanged, or is told."""

from __future__ import annotations

import pickle
import socket

import pytest
from device_plans import reporter
from messages import message, pseudonym
from publishing import WAYS

from clientsdk import MemoryPublisher, Publisher
from clientsdk.publishers import PUBLISHERS, is_buffered, publisher_of
from sotto.errors import PublishError
from sotto.wire.format import Row, encode_message

#: Ways that a test can cut; a broker that dies is in tests/clientsdk/publishers and tests/kafka.
CUT = WAYS.keys() - {"memory", "kafka"}
#: Messages of six pseudonyms.
SENT = [message(bytes([n + 1]) * 40, pseudonym(n)) for n in range(6)]


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    with WAYS[request.param](tmp_path) as made:
        yield made


def publish(publisher: Publisher) -> None:
    """Publish all messages and have them safe."""
    for shard, each in enumerate(SENT):
        publisher.publish(shard % 4, each)
    if is_buffered(publisher):
        publisher.sync()


def test_all_that_was_published_arrives_unchanged(way):
    publisher, taken, _ = way
    publish(publisher)
    assert sorted(taken(SENT)) == sorted(SENT)


def test_closing_twice_is_closing_once(way):
    publisher, taken, _ = way
    publish(publisher)
    publisher.close()
    publisher.close()
    assert sorted(taken(SENT)) == sorted(SENT)


@pytest.mark.parametrize("way", sorted(CUT), indirect=True)
def test_a_way_that_is_cut_is_told_without_a_message_and_without_an_address(way):
    publisher, _, cut = way
    cut()
    with pytest.raises(PublishError) as told:
        publish(publisher)
    assert "127.0.0.1" not in str(told.value)


def test_a_client_reports_the_same_bytes_whatever_way_they_go(way):
    publisher, taken, _ = way
    memory = MemoryPublisher()
    for each in (memory, publisher):
        client = reporter(each)
        client.clock.advance(hours=2)
        assert client.flush().sent == 1
        client.close()
    ((_, expected),) = memory.messages
    assert taken([expected]) == [expected]


def test_no_publisher_with_connections_crosses_to_another_process(way):
    publisher, *_ = way
    if isinstance(publisher, MemoryPublisher):
        assert pickle.dumps(publisher)
        return
    with pytest.raises(TypeError, match="each process"):
        pickle.dumps(publisher)


URLS = {
    "https": "https://telemetry.example",
    "http": "http://localhost:8470",
    "file": "file:{}/log",
    "kafka": "kafka://localhost:9092/reports-e1-p8",
}


@pytest.mark.parametrize("scheme", PUBLISHERS)
def test_a_url_stands_for_a_publisher_that_connects_to_nothing_yet(scheme, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    publisher = publisher_of(URLS[scheme].format(tmp_path))
    assert type(publisher).__name__ == PUBLISHERS[scheme][1]
    if is_buffered(publisher):
        publisher.sync()
    publisher.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_a_log_has_the_path_of_its_url(form, tmp_path):
    folder = tmp_path / "a log"
    publisher = publisher_of(form.format(str(folder).replace(" ", "%20")))
    publish(publisher)
    publisher.close()
    assert len(list(folder.iterdir())) == len(SENT)


def two_pseudonyms() -> bytes:
    rows = [Row(0, pseudonym(each), bytes(16), 0, b"x") for each in (1, 2)]
    return encode_message(bytes(32), 0, [(0, rows)])


@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"memory"}), indirect=True)
def test_what_is_no_message_of_one_pseudonym_is_refused(way):
    publisher, taken, _ = way
    for sent, said in ((b"anything", "at least 40 bytes"), (two_pseudonyms(), "pseudonym, not 2")):
        with pytest.raises(PublishError, match=said):
            publisher.publish(0, sent)
    assert taken([]) == []
