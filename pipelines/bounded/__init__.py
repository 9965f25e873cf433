"""Bounded aggregation runs."""
