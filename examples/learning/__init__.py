"""Learning to read digits from reports alone: features and label randomized by each client."""
