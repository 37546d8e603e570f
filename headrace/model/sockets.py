"""Declares sockets as sources; the engine connects to them."""

from __future__ import annotations

from urllib.parse import urlsplit

from headrace.model.errors import PipelineError
from headrace.model.pipeline import PCollection
from headrace.model.topics import ReadTopic
from headrace.model.watermarks import Monotonic, WatermarkPolicy


class ReadSocket(ReadTopic):
    """Reads the lines that a server sends, as text; the event time of a line is the time when it was received.

    The driver connects, e.g. to `nc -lk 9999`, and writes the lines to a topic before they count as received; the
    stream reads that topic, also again after a crash. The topic is in the stream's checkpoint or, with `log`, in that
    embedded log, where others can read it, too. A new stream starts with the lines that are there already.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> p | hr.ReadSocket("tcp://127.0.0.1:9999")
    <PCollection of str from 'ReadSocket', unbounded>
    """

    values = "value string"

    def __init__(self, uri: str, *, log: str | None = None, watermark: WatermarkPolicy = Monotonic()) -> None:
        self.uri, self.host, self.port = _endpoint(uri)
        plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in self.host)
        super().__init__(f"tcp-{plain}-{self.port}", log=log, watermark=watermark)
        self.in_checkpoint = log is None  # and then the stream says where that is

    def __str__(self) -> str:
        return f"ReadSocket({self.uri!r})"

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return str


def _endpoint(uri: str) -> tuple[str, str, int]:
    wrong = "ReadSocket takes tcp://HOST:PORT, e.g. 'tcp://127.0.0.1:9999'"
    if not isinstance(uri, str):
        raise PipelineError(f"{wrong}; got {uri!r}")
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise PipelineError(f"{wrong}: {error}") from None
    if "@" in parts.netloc:
        raise PipelineError(f"{wrong}; a socket has no user or password, got one for {host!r}; leave it out")
    if parts.scheme != "tcp" or not host or not port or parts.path.strip("/") or parts.query or parts.fragment:
        raise PipelineError(f"{wrong}; got {uri!r}")
    return f"tcp://{parts.netloc}", host, port
