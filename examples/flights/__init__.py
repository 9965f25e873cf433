"""A year of real flights: every aircraft is a device that embeds the SDK.

``python -m examples.flights`` (``make demo``) runs the whole job; see :mod:`.__main__`.
"""
