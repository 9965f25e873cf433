"""The memory of a device: one SQLite file, or the same in memory, and the guard beside it."""
