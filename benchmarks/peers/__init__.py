"""Sotto beside the packages that its users would pick instead: same work, same run, one table.

Needs an environment of its own, which ``make bench`` makes from ``requirements.lock`` here.
"""
