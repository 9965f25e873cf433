"""The report format and its decoding."""
