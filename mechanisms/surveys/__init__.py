"""Surveys on one sensitive yes-or-no question: Warner, Simmons, Christofides, and the deck."""
