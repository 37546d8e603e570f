"""The server in a process of its own, and calls back to the process that started it."""
