"""Vertices: what a user writes of a timely dataflow. A vertex gets messages and notices, and sends messages."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from headrace.model.errors import PipelineError
from headrace.model.timely.antichains import Time


class Calls(Protocol):
    """Takes what a vertex asks for while it is called."""

    def send(self, output: str, message: Any, time: Time) -> None:
        """Sends a message by an output."""

    def notify_at(self, time: Time) -> None:
        """Asks for a notice."""


class Vertex:
    """Base of vertices: `on_recv(message, time)` gets messages, `on_notify(time)` the notices that it asked for.

    A time is a tuple: the epoch, then a counter for each loop around the vertex. A notice of a time comes when no
    message of that time or an earlier one can come any more. In a call of one time, a vertex sends and asks for notices
    at that time or later ones. A vertex with several inputs has a method for each, `on_recv_NAME(message, time)`. Its
    attributes are its state, which is stored; they must be such that they can be pickled.

    >>> class DistinctCount(Vertex):
    ...     def __init__(self):
    ...         self.seen = {}
    ...     def on_recv(self, message, time):
    ...         if time not in self.seen:
    ...             self.seen[time] = set()
    ...             self.notify_at(time)
    ...         self.seen[time].add(message)
    ...     def on_notify(self, time):
    ...         self.send(len(self.seen.pop(time)), time)
    """

    outputs: ClassVar[tuple[str, ...]] = ("out",)
    """The names of the outputs of the vertex; `send` uses the first."""

    _calls: Calls | None = None

    def on_recv(self, message: Any, time: Time) -> None:
        """Takes a message of the only input."""
        raise NotImplementedError(f"{type(self).__name__} has no method on_recv(message, time)")

    def on_notify(self, time: Time) -> None:
        """Takes a notice: no message of this time or an earlier one can come any more."""
        raise NotImplementedError(f"{type(self).__name__} has no method on_notify(time), and asked for a notice")

    def send(self, message: Any, time: Time) -> None:
        """Sends a message by the first output."""
        self._called("send").send(self.outputs[0], message, time)

    def send_by(self, output: str, message: Any, time: Time) -> None:
        """Sends a message by an output."""
        self._called("send_by").send(output, message, time)

    def notify_at(self, time: Time) -> None:
        """Asks for a notice of a time; who asks twice before it comes gets it once."""
        self._called("notify_at").notify_at(time)

    def _called(self, method: str) -> Calls:
        if self._calls is None:
            raise PipelineError(
                f"{type(self).__name__}: {method} works within on_recv and on_notify alone; call it there"
            )
        return self._calls
