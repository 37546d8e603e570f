"""Runs the computations of a directory, and shows them to other processes."""
