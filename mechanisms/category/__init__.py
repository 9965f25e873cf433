"""Mechanisms for a category out of a fixed domain."""
