"""What can be wrong with a log."""


class LogError(ValueError):
    """A topic, partition, offset or record that cannot be: the message names it and what to do."""


class CorruptionError(LogError):
    """Bytes of a log are not those that were written; the message names topic, partition and offset."""
