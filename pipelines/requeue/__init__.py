"""Requeue: quarantined messages are counted once there is a plan for them."""
