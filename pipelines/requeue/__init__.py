"""Requeue: counts quarantined messages once there is a plan for them (``sotto requeue``).

:mod:`~pipelines.requeue.state` is for state directories, :mod:`~pipelines.requeue.topic` for
streaming jobs; :mod:`~pipelines.requeue.contents` shows what is in quarantine.
"""
