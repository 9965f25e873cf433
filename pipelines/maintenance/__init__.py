"""An operator's work on a state directory beside runs: retain, forget, back up, restore.

The commands are ``sotto retain``, ``forget``, ``backup`` and ``restore``.
"""
