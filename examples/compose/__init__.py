"""Reports for the deployment in containers, to see it at work."""
