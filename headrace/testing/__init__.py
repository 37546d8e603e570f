"""The test kit: drive windows, triggers and pipelines by a script, with time in the hands of the test."""

from headrace.model.teststream import TestStream
from headrace.testing.play import play

__all__ = ["TestStream", "play"]
