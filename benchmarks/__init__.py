"""Measurements behind every figure that the README and docs/ quote."""
