"""What both sides agree on: the collection plan, the report format, the log framing."""
