"""Designing a collection: users, precision, budgets."""
