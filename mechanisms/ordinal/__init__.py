"""Values with a loss between them: bipartite randomized response and what beats it."""
