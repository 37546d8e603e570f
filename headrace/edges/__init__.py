"""Clients of topics, Kafka, databases, sockets and output files. They know nothing of the engine and need no Spark."""
