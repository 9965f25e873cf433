"""Gradual release of one value: relaxation, its estimates and attacks on it, and a market.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, 2024.
"""
