"""Audits: what a mechanism claims, what its thresholds certify, and what an attack shows."""
