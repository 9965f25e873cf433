"""Mechanisms for strings, and the decoding of their reports."""
