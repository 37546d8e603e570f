"""Runs programs: batches are logged as their time comes, and run by a stream of the engine."""
