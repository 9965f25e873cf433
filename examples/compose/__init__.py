"""What is sent to the deployment in containers, to see it at work."""
