"""Incremental computation: programs over collections that change, with loops. Declarations only; no Spark."""
