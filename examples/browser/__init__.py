"""A page that randomizes what its visitor answers, and posts the reports to a collector."""
