"""Containers: their images, one process of Flink in each, passwords that nobody thinks up."""
