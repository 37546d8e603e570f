"""Builds the pipeline of a computation: an ordinary one, of a stateful DoFn between topics."""
