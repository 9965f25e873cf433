"""Mechanisms for a device's most frequent item, and selection by score."""
