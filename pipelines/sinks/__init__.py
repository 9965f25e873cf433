"""Sinks of results: SQL databases and Kafka topics."""
