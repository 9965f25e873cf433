"""Mechanisms for vectors of numbers."""
