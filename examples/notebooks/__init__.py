"""Notebooks about results, and a small job whose results they can be tried on."""
