"""The common part of the collector's interface and the pages of results."""
