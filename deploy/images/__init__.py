"""What runs in containers: images, one process of Flink each, passwords that nobody thinks up."""
