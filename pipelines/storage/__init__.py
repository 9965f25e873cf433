"""The state directory: what is committed, and how."""
