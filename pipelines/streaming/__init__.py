"""A streaming job without its engine: keepers of keyed state, driven by letters and ticks."""
