"""Aggregating topics of a real broker amid transactions, and the exporter beside it."""

from __future__ import annotations

import pytest
from aggregated import PATIENCE, aggregated
from kafka import KafkaProducer
from watched import samples
from yesterday import publish

from sotto_cli import main

pytestmark = pytest.mark.slow


def test_transactions_are_counted_once_they_are_committed(broker, local, topic, tmp_path, capsys):
    """Messages behind an open one wait, aborted ones are not counted, markers are no lag."""

    def lag(figure):
        options = ["--broker", str(local.client_file), "--topic", str(topic), "--once"]
        assert main(["exporter", *options, "--state", str(tmp_path)]) == 0
        (found,) = samples(capsys.readouterr().out)[f"sotto_lag_{figure}"].values()
        return found

    publish(broker, topic, 2)
    # The broker ends a transaction that it takes for forgotten.
    options = {**broker.options(PATIENCE), "transaction_timeout_ms": 2 * PATIENCE * 1000}
    producer = KafkaProducer(transactional_id="test", **options)
    producer.init_transactions()
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        for partition in range(topic.partitions):
            producer.send(str(topic), value, partition=partition)
        producer.flush(PATIENCE)
        before = aggregated(broker, topic, tmp_path)
        assert (before.tally.reports, before.rejects) == (0 if commit else 4, {})
        (producer.commit_transaction if commit else producer.abort_transaction)()
        result = aggregated(broker, topic, tmp_path)
        assert result.tally.reports == 0
        assert result.rejects == ({"malformed": topic.partitions} if commit else {})
        assert [lag(figure) for figure in ("records", "partitions", "seconds")] == [0, 0, 0]
    producer.close()
    assert aggregated(broker, topic, tmp_path).runs == 0
    publish(broker, topic, 2, first=2)
    assert lag("records") == 4
