"""Beam pipelines that run until they are stopped: partitions in, documents of estimates out."""
