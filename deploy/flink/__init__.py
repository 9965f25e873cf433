"""Apache Flink on this machine: resolved with pip, checked, started as a session, stopped."""
