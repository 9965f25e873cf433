"""The fault run: reports that can be told apart, and faults until something is lost or twice."""
