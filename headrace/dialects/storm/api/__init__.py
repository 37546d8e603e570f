"""Declarations that a user of the dialect writes: components, topologies, groupings, settings. Runs nothing."""
