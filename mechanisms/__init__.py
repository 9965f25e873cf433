"""Randomizers, channels, relaxation, estimators and accounting. No I/O."""
