"""What a plan collects, in the words of those who must be told: people, lawyers, stores."""
