"""What Beam's workers need beside the pipelines: the pool that starts them."""
