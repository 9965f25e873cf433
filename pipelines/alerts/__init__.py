"""Alerts on estimates: figures that moved, found in the results, kept in a file, and sent once.

``configuration`` is the file that a user writes; ``series`` reads the figures from the results;
``evaluation`` finds figures that moved; ``kept`` is the file of alerts; ``notifiers`` send them;
``watch`` puts these together for ``sotto alerts`` and ``sotto serve``. The statistics are in
:mod:`mechanisms.estimators.shifts`.

Privacy: alerts are made of published estimates alone; a withheld window counts as missing.
"""
