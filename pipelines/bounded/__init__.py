"""Bounded aggregation runs, for ``sotto aggregate``.

:mod:`~pipelines.bounded.run` takes a log or topics to their ends, run by run;
:mod:`~pipelines.bounded.driver` commits each run; :mod:`~pipelines.bounded.job` is its Beam graph.
"""
