"""A plan's collection, in the words of those who must be told: people, lawyers, stores."""
