"""Side inputs in a worker: a whole collection in the shape the function asked for, window by window.

A plan has the model's `SideInput`s. A run binds each to a `SideValue`, whose elements are broadcast or, where the side
input is a stream of its own, come with the elements that see it; see `headrace.engine.sides.processor`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells
from headrace.engine.worker.bundles import from_block
from headrace.model.elementwise import AsSingleton, SideInput
from headrace.model.windows import GlobalWindows, WindowFn

WindowBounds = tuple[int, int]


@lru_cache(maxsize=4096)
def side_window(window: WindowFn, main: WindowBounds) -> WindowBounds:
    """Returns the side window that elements of a main window see: the one that holds the main window's last instant.

    >>> from headrace.model.windows import FixedWindows
    >>> side_window(FixedWindows("10 us"), (12, 15))
    (10, 20)
    """
    _, start, end = window.assign(np.array([main[1] - 1], np.int64))
    return int(start[-1]), int(end[-1])


class BroadcastVariable(Protocol):
    """Spark's broadcast variable, as far as a worker uses it."""

    @property
    def value(self) -> Any: ...


@dataclass
class BroadcastBlocks:
    """Elements of a side input that were broadcast as packed blocks.

    The variable is looked up when it is read: in the process where Spark only inspects a stateful operator there is
    none.
    """

    blocks: BroadcastVariable | bytes
    _by_window: dict[WindowBounds | None, list[Any]] | None = field(default=None, repr=False)

    def elements(self, window: WindowBounds | None) -> list[Any]:
        """Returns the elements of a window; of all windows for None. One side input is asked in one way only."""
        if self._by_window is None:
            self._by_window = {}
            variable = pickle.loads(self.blocks) if isinstance(self.blocks, bytes) else self.blocks
            for bundle in map(from_block, variable.value):
                for element, bounds in zip(bundle.elements, bundle.windows(), strict=True):
                    self._by_window.setdefault(None if window is None else bounds, []).append(element)
        return self._by_window.get(window, [])

    def __getstate__(self) -> dict[str, Any]:
        blocks = self.blocks if isinstance(self.blocks, bytes) else pickle.dumps(self.blocks)
        return {"blocks": blocks, "_by_window": None}


@dataclass
class ShownCells:
    """Elements of a side input that come with the bundles which see them: a cell per window, with their list."""

    cells: dict[WindowBounds | None, bytes] = field(default_factory=dict, repr=False)

    def elements(self, window: WindowBounds | None) -> list[Any]:
        """Returns the elements of a window."""
        return list(decode_cells(pa.array([self.cells[window]], pa.binary()))[0])

    def __getstate__(self) -> dict[str, Any]:
        return {"cells": {}}


@dataclass
class SideValue:
    """The value of a side input of one transform, built once per worker and window.

    An element of the main input sees the side window that holds the last instant of its own window.
    """

    label: str
    shape: str
    window: WindowFn
    source: BroadcastBlocks | ShownCells
    default: Any = ...
    _built: dict[WindowBounds | None, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(side: SideInput, source: BroadcastBlocks | ShownCells) -> SideValue:
        """Binds a side input to where its elements are read from."""
        pc = side.collection
        default = side.default if isinstance(side, AsSingleton) else ...
        return SideValue(pc.label, side.shape, pc.windowing.window, source, default)

    @property
    def windowed(self) -> bool:
        """Whether elements of different windows may see different values."""
        return not isinstance(self.window, GlobalWindows)

    def value(self, main: WindowBounds | None = None) -> Any:
        """Returns the side input as an element in this window sees it."""
        side = side_window(self.window, main) if self.windowed and main is not None else None
        if side not in self._built:
            self._built[side] = self._shaped(self.source.elements(side))
        return self._built[side]

    def show(self, windows: dict[WindowBounds, bytes]) -> None:
        """Replaces the contents of all windows by these cells; values of windows that did not change stay built."""
        assert isinstance(self.source, ShownCells), self.source
        cells = {window if self.windowed else None: cell for window, cell in windows.items()}
        same = {window for window, cell in cells.items() if self.source.cells.get(window) == cell}
        self._built = {window: value for window, value in self._built.items() if window in same}
        self.source.cells = cells

    def _shaped(self, elements: list[Any]) -> Any:
        if self.shape == "dict":
            return dict(elements)
        if self.shape == "singleton":
            if len(elements) == 1:
                return elements[0]
            if not elements and self.default is not ...:
                return self.default
            raise ValueError(
                f"AsSingleton({self.label!r}) needs exactly one element, it has {len(elements)}; "
                "combine them with CombineGlobally, or give a default for none"
            )
        return elements

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_built": {}}


SideResolver = Callable[[SideInput], SideInput | SideValue]
"""Says what takes the place of a side input among the arguments of a call: its value, or itself to be bound later."""
