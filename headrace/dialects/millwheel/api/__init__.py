"""Declarations of users: computations, their records, timers and state; and injectors."""
