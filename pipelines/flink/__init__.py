"""The streaming job on Apache Flink: keepers in keyed operators, between Kafka topics.

Modules that import PyFlink run in its own environment; those that prepare and watch a job do not.
"""
