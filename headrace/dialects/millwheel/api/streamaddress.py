"""Addresses of streams: a name is a topic in the log of the mill, a URI one of Kafka or of another log."""

from __future__ import annotations

import os

from headrace.model.topics import Address, address


def log_of(stream: str, log: str | os.PathLike[str] | None) -> str | None:
    """Returns the directory of the log that has a stream; None if the stream is a URI, which says it itself.

    >>> log_of("queries", "/data/log"), log_of("kafka://127.0.0.1:9092/queries", "/data/log")
    ('/data/log', None)
    """
    return None if ":" in stream or log is None else os.fspath(log)


def stream_address(stream: str, log: str | os.PathLike[str] | None) -> Address:
    """Returns the address of a stream.

    >>> print(stream_address("queries", "/data/log"), stream_address("kafka://127.0.0.1:9092/queries", "/data/log"))
    topic:/data/log/queries kafka://127.0.0.1:9092/queries
    """
    return address(stream, log=log_of(stream, log))
