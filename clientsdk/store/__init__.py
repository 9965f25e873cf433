"""What a device remembers: one SQLite file, or the same in memory, and the guard beside it."""
