"""The model: what a pipeline means. Pure Python and arrays; nothing here imports Spark."""
