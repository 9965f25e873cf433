"""Audits: what mechanisms claim, are certified at, and lose to an attack."""
