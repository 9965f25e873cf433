"""What the collector's interface and the pages of results have in common."""
