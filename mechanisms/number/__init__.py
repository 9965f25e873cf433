"""Mechanisms for a number in a range, and estimates from their reports."""
