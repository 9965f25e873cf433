"""Apache Kafka on this machine: resolved with Maven, checked, formatted, started, stopped."""
