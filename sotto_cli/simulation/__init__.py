"""Devices without people: the SDK's own client with a clock that a command moves."""
