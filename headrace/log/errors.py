"""Errors of the embedded log."""

from headrace.model.errors import HeadraceError


class LogError(HeadraceError, ValueError):
    """A topic, partition, offset or record is refused; the message names it and says what to do."""


class FencedError(LogError):
    """An append is refused, because another process has taken over the producer that this one appends as."""


class CorruptionError(LogError):
    """Bytes of a log are not those that were written; the message names topic, partition and offset."""
