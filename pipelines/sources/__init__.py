"""Sources of reports: the embedded log and Kafka topics."""
