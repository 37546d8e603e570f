"""Executes topologies: clusters, threads of spouts, restarts, status and commands."""
