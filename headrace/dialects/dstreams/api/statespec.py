"""StateSpec: what mapWithState does with the state of keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.model.errors import PipelineError

if TYPE_CHECKING:
    from pyspark import RDD


class StateSpec:
    """Says how mapWithState treats states: a function, and optionally partitions, a timeout and initial states.

    The function takes (key, value, state), and what it returns are the elements of the stream; or it takes (time, key,
    value, state), and may return None for no element. It is called for each element, and with the value None when a key
    times out.

    >>> def count(key, value, state):
    ...     state.update((state.getOption() or 0) + value)
    ...     return key, state.get()
    >>> StateSpec.function(count).timeout(30).numPartitions(4)
    StateSpec.function(count).numPartitions(4).timeout(30)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise PipelineError(f"StateSpec.function takes a function of (key, value, state), got {function!r}")
        count = len(inspect.signature(function).parameters)
        if count not in (3, 4):
            raise PipelineError(
                f"StateSpec.function takes a function of (key, value, state) or (time, key, value, state), got "
                f"{function!r} with {count} parameters"
            )
        self._function, self._timed = function, count == 4
        self._partitions: int | None = None
        self._timeout: float | None = None
        self._initial: RDD[Any] | Iterable[Any] | None = None

    @classmethod
    def function(cls, mappingFunction: Callable[..., Any]) -> StateSpec:
        """Returns a spec with this function and nothing else."""
        return cls(mappingFunction)

    def numPartitions(self, numPartitions: int) -> StateSpec:
        """Sets the number of partitions of the state."""
        if type(numPartitions) is not int or numPartitions < 1:
            raise PipelineError(f"StateSpec.numPartitions: there is at least one, got {numPartitions!r}")
        self._partitions = numPartitions
        return self

    def timeout(self, idleDuration: float) -> StateSpec:
        """Sets the seconds after which a key without new values times out."""
        if not idleDuration > 0:
            raise PipelineError(f"StateSpec.timeout: the seconds are positive, got {idleDuration!r}")
        self._timeout = idleDuration
        return self

    def initialState(self, rdd: RDD[Any] | Iterable[Any]) -> StateSpec:
        """Sets the states of keys before the first batch: an RDD or a list of pairs."""
        self._initial = rdd
        return self

    def __repr__(self) -> str:
        shown = f"StateSpec.function({getattr(self._function, '__name__', self._function)})"
        if self._partitions is not None:
            shown += f".numPartitions({self._partitions})"
        return shown if self._timeout is None else f"{shown}.timeout({self._timeout})"
