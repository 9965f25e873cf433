"""Estimates from the counts of a window."""
