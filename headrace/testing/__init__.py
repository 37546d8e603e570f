"""Tools for tests: drive windows, triggers and pipelines by a script in which the test moves the clocks."""

from headrace.model.teststream import TestStream
from headrace.testing.play import play

__all__ = ["TestStream", "play"]
