"""Beam jobs: from the log to estimates."""
