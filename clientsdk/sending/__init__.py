"""Sending what is due: the background worker, the sender, and its lock between processes."""
