"""The collection plan: parsing, checks, compilation."""
