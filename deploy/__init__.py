"""How Sotto is deployed: a broker of its own, from published and pinned parts."""
