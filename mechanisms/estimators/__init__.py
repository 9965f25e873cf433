"""Estimators that several mechanisms share."""
