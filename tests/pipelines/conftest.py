"""Puts this folder on the path, for the helpers that its subfolders share."""
