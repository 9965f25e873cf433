"""Kafka: addresses, topics, access, producers."""
