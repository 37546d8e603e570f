"""Builds the pipeline of a topology: its tasks as transforms of the model. Runs nothing."""
