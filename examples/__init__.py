"""What Sotto does, on real data."""
