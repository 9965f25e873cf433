"""Devices killed with -9 at random instants, and what must hold whatever the instant."""
