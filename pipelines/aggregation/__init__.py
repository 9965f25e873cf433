"""Aggregation: from decoded rows to counts and budgets."""
