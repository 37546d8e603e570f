"""Nexmark's queries as its rivals and a recount have them, one module for each."""
