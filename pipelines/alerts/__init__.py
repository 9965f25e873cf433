"""Alerts on estimates: figures that moved, found in the results, kept in a file, and sent once.

``configuration`` is what a user writes; ``series`` are the figures, read from the results;
``evaluation`` finds what moved; ``kept`` is the file of alerts; ``webhook`` sends them; ``watch``
puts these together for ``sotto alerts`` and ``sotto serve``. The statistics are in
:mod:`mechanisms.estimators.shifts`.

Privacy: alerts are made of published estimates alone; what is withheld is a missing window.
"""
