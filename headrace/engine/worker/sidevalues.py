"""Side inputs on the workers: a whole collection in the shape the function asked for, window by window.

It is broadcast, or, where it is a stream of its own, comes with the elements that see it; see `sideshards`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells
from headrace.model.windows import GlobalWindows, WindowFn

WindowBounds = tuple[int, int]


@lru_cache(maxsize=4096)
def side_window(window: WindowFn, main: WindowBounds) -> WindowBounds:
    """The window of a side input that elements of a window of the main input see: it holds that one's last instant.

    >>> from headrace.model.windows import FixedWindows
    >>> side_window(FixedWindows("10 us"), (12, 15))
    (10, 20)
    """
    _, start, end = window.assign(np.array([main[1] - 1], np.int64))
    return int(start[-1]), int(end[-1])


@dataclass
class SideValue:
    """A side input of one transform. The value is built once per worker and window.

    An element of the main input sees the side window that holds the last instant of its own window.
    """

    label: str
    shape: str
    window: WindowFn
    default: Any
    read: Any  # the frame it comes from in a plan; in a run, a function that gives its bundles, or None if it is shown
    _by_window: dict[WindowBounds | None, list[Any]] | None = field(default=None, repr=False)
    _built: dict[WindowBounds | None, Any] = field(default_factory=dict, repr=False)
    _shown: dict[WindowBounds | None, bytes] = field(default_factory=dict, repr=False)

    @property
    def windowed(self) -> bool:
        return not isinstance(self.window, GlobalWindows)

    def value(self, main: WindowBounds | None = None) -> Any:
        """The side input as an element in this window sees it."""
        side = side_window(self.window, main) if self.windowed and main is not None else None
        if side not in self._built:
            self._built[side] = self._shaped(self._elements(side))
        return self._built[side]

    def show(self, windows: dict[WindowBounds, bytes]) -> None:
        """From here on, each of these windows is a cell with the list of its elements."""
        shown = {window if self.windowed else None: cell for window, cell in windows.items()}
        same = {window for window, cell in shown.items() if self._shown.get(window) == cell}
        self._built = {window: value for window, value in self._built.items() if window in same}
        self._shown = shown

    def _elements(self, window: WindowBounds | None) -> list[Any]:
        if self.read is None:
            return list(decode_cells(pa.array([self._shown[window]], pa.binary()))[0])
        return self._broadcast().get(window, [])

    def _broadcast(self) -> dict[WindowBounds | None, list[Any]]:
        if self._by_window is None:
            self._by_window = {}
            for bundle in self.read():
                for element, window in zip(bundle.elements, bundle.windows(), strict=True):
                    self._by_window.setdefault(window if self.windowed else None, []).append(element)
        return self._by_window

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
        return {**self.__dict__, "_by_window": None, "_built": {}, "_shown": {}}
