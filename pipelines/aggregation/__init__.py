"""Aggregation: from messages to counts, budgets and rows of results; numpy alone, without Beam.

:mod:`~pipelines.aggregation.decode` makes rows of messages, :func:`pipelines.aggregation.step.step`
counts them and audits budgets, :mod:`~pipelines.aggregation.published` decides what may be
published of a window, and :mod:`~pipelines.aggregation.result_rows` makes the rows of it.
"""
