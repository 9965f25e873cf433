"""The HTTP collector: takes messages from devices and writes them to the log or to Kafka."""
