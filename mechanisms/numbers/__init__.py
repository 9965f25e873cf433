"""Numbers on a fixed grid, by finite channels, and the float mechanisms that they replace."""
