"""Predicted errors of mechanisms, and the choice between them."""
