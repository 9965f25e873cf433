"""Examples of what Sotto does, on real data."""
