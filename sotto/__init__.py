"""The parts that both sides agree on: the collection plan, the report format, the log framing."""

from sotto.version import __version__

__all__ = ["__version__"]
