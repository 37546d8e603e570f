"""Graphs of vertices, run within one shard: messages, notices, and state as blocks. No Spark."""
