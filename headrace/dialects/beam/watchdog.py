"""Watches a splittable DoFn that runs, and splits off the rest of its restriction when it has had its share.

A DoFn that has no end need not stop by itself: what it has not claimed yet goes on in the next micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Any, Final, Self

from headrace.dialects.beam.harness import Residual

_LOOK_S: Final = 0.02


@dataclass(frozen=True)
class Budget:
    """The time that a step may take, and the number of elements that it may emit, before what runs is split."""

    seconds: float = 1.0
    elements: int = 20_000


class Watchdog:
    """A thread that looks at the operation of a splittable DoFn while a step runs, as a context.

    `left` is what it split off, and `over` says that the budget is used up.
    """

    def __init__(self, op: Any, emitted: Callable[[], int], budget: Budget) -> None:
        self._op, self._emitted, self._budget = op, emitted, budget
        self._ended = Event()
        self.over = False
        self.left: list[Residual] = []
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        while not self._ended.wait(_LOOK_S):
            looks += 1
            if looks * _LOOK_S >= self._budget.seconds or self._emitted() >= self._budget.elements:
                self.over = True
                split = self._op.try_split(0.0)
                if split is not None:
                    _, residuals = split
                    self.left += residuals
