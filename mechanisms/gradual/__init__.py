"""Gradual release: what one value may say when its budget is released step by step."""
