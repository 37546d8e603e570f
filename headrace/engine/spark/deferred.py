"""Stateful operators that are quick to plan.

Whenever a query starts, Spark asks each operator what state it has, in a Python process made for that. That process
needs neither this package nor the user's functions, so it imports none of them.
"""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class Deferred:
    """A stateful processor whose pickle only declares its state; in a task it becomes the processor."""

    def __init__(self, processor: StatefulProcessor) -> None:
        self._processor = processor

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        declared = _Declared()
        copy.copy(self._processor).init(declared)  # type: ignore[arg-type]
        return _declaring(), (declared.calls, cloudpickle.dumps(self._processor))


class _Declared:
    """Stands in for a handle and records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, arguments))


def _declaring() -> type:
    # Not in a module, so that its pickle holds its code, and whoever unpickles it imports nothing for it.
    class Declaring(StatefulProcessor):
        def __init__(self, calls: list[tuple[str, tuple[Any, ...]]], pickled: bytes) -> None:
            self.calls, self.pickled = calls, pickled
            self.planning = TaskContext.get() is None
            if self.planning:
                sys.stdout = io.StringIO()  # or Spark prints there how far its planning is

        def init(self, handle: StatefulProcessorHandle) -> None:
            if self.planning:
                for name, arguments in self.calls:
                    getattr(handle, name)(*arguments)
            else:
                from headrace.engine.worker.frozenimports import freeze_imports

                self.processor = pickle.loads(self.pickled)
                freeze_imports()
                self.processor.init(handle)

        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            self.processor.handleInitialState(key, initialState, timerValues)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            return self.processor.handleInputRows(key, rows, timerValues)  # type: ignore[no-any-return]

        def close(self) -> None:
            if not self.planning:
                self.processor.close()

    return Declaring
