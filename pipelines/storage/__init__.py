"""The state directory of aggregation runs: its files, and how a run commits.

:mod:`~pipelines.storage.directory` has the layout, :mod:`~pipelines.storage.manifest` what is
committed; :class:`pipelines.bounded.driver.Driver` writes both.
"""
