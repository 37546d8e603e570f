"""The border between Headrace's bundles and Beam's windowed values.

Outside of stages, elements are the bytes of Beam's coders: one cell an element, pairs of bytes before a grouping, and
the bytes of a key with those of its values behind it. Times and windows are arrays, and a bundle has one pane.

Windows that are intervals are bounds. A window of any other kind is its bytes, and goes with its element, or in front
of its key; its bounds reach from the beginning of time to its last instant, which is all that lateness needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np
from apache_beam.coders import Coder
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from headrace.engine.worker.bundles import Bundle, Int64Array
from headrace.model.panes import PaneInfo
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.model.windows import GLOBAL_WINDOW

_TIMINGS: Final = ("early", "on_time", "late", "unknown")  # at Beam's numbers
_GLOBAL: Final = (GlobalWindow(),)
_LAST: Final = GlobalWindow().max_timestamp().micros  # of the global window
_LOW: Final = MIN_TIME - MIN_TIMESTAMP.micros
_HIGH: Final = MAX_TIME - MAX_TIMESTAMP.micros
_MOVED: Final = 2**60
"""How much of each end of Headrace's range is for what was moved there: 36,000 years."""
NORMAL: Final = range(MIN_TIME + _MOVED, MAX_TIME - _MOVED)
"""The times that are the same in both."""
WindowKind = Enum("WindowKind", ["GLOBAL", "INTERVAL", "FOLDED"])


class Form(Enum):
    """The form of elements outside of stages."""

    CODED = "coded"  # the bytes of the element
    PAIRS = "pairs"  # the bytes of key and value
    GROUPS = "groups"  # the bytes of the key, and those of each value


# Times


def to_times(micros: Sequence[int]) -> Int64Array:
    """Converts times of Beam's, in microseconds.

    Beam's range is twice Headrace's: what is beyond that is moved, so that the ends of both meet. Behind the last
    instant of Beam's global window there is the end of time.

    >>> to_times([5, MAX_TIMESTAMP.micros]).tolist() == [5, MAX_TIME]
    True
    """
    times = np.array(micros, np.int64)
    moved: Int64Array = np.where(times < MIN_TIME, times + _LOW, np.where(times > MAX_TIME, times + _HIGH, times))
    moved[times == _LAST] = MAX_TIME - 1
    moved[times > _LAST] = MAX_TIME
    return moved


def from_times(times: Int64Array) -> list[int]:
    """Converts times to microseconds of Beam's.

    >>> from_times(np.array([5, MAX_TIME - 1])) == [5, GlobalWindow().max_timestamp().micros]
    True
    """
    micros: Int64Array = np.where(
        times < MIN_TIME + _MOVED, times - _LOW, np.where(times > MAX_TIME - _MOVED, times - _HIGH, times)
    )
    micros[times <= MIN_TIME] = MIN_TIMESTAMP.micros
    micros[times == MAX_TIME - 1] = _LAST
    micros[times >= MAX_TIME] = MAX_TIMESTAMP.micros
    return micros.tolist()


def _to_bound(micros: int) -> int:
    """Converts a bound of a window, which may be before the beginning of Beam's time."""
    return min(micros + (_LOW if micros < MIN_TIME else _HIGH if micros > MAX_TIME else 0), MAX_TIME)


def _from_bound(bound: int) -> int:
    """Converts a bound to microseconds of Beam's."""
    return bound - (_LOW if bound < MIN_TIME + _MOVED else _HIGH if bound > MAX_TIME - _MOVED else 0)


# Panes


@lru_cache(maxsize=1024)
def to_pane(first: bool, last: bool, timing: int, index: int, on_time_index: int) -> PaneInfo:
    """Converts a pane of Beam's, by its fields."""
    return PaneInfo(_TIMINGS[timing], index, on_time_index, first, last)


@lru_cache(maxsize=1024)
def from_pane(pane: PaneInfo) -> windowed_value.PaneInfo:
    """Converts a pane to Beam's.

    >>> from headrace.model.panes import ONLY_PANE
    >>> from_pane(ONLY_PANE)
    PaneInfo(first: True, last: True, timing: ON_TIME, index: 0, nonspeculative_index: 0)
    """
    timing = _TIMINGS.index(pane.timing)
    return windowed_value.PaneInfo(pane.is_first, pane.is_last, timing, pane.index, pane.on_time_index)


def _pane_of(value: WindowedValue) -> PaneInfo:
    pane = value.pane_info
    return to_pane(pane.is_first, pane.is_last, pane.timing, pane.index, pane.nonspeculative_index)


# Windows


@dataclass
class WindowBorder:
    """Windows of one collection, as bounds and as Beam's objects."""

    kind: WindowKind
    coder: Coder

    def __post_init__(self) -> None:
        self._impl = self.coder.get_impl()
        self._by_bounds: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._by_bytes: dict[bytes, tuple[Any, ...]] = {}

    @staticmethod
    def of(coder: Coder) -> WindowBorder:
        """Returns the border of windows with this coder."""
        if isinstance(coder, GlobalWindowCoder):
            return WindowBorder(WindowKind.GLOBAL, coder)
        return WindowBorder(WindowKind.INTERVAL if type(coder) is IntervalWindowCoder else WindowKind.FOLDED, coder)

    def bounds(self, window: Any) -> tuple[int, int]:
        """Returns the bounds of a window."""
        if self.kind is WindowKind.GLOBAL:
            return GLOBAL_WINDOW
        if self.kind is WindowKind.INTERVAL:
            return _to_bound(window._start_micros), _to_bound(window._end_micros)
        return MIN_TIME, int(to_times([window.max_timestamp().micros])[0]) + 1

    def bytes_of(self, window: Any) -> bytes:
        """Returns the bytes of a window."""
        encoded: bytes = self._impl.encode(window)
        return encoded

    def interval(self, bounds: tuple[int, int]) -> tuple[Any, ...]:
        """Returns the window with these bounds, as the windows of an element; the same object each time."""
        found = self._by_bounds.get(bounds)
        if found is None:
            start, end = (Timestamp(micros=_from_bound(bound)) for bound in bounds)
            found = self._by_bounds[bounds] = (IntervalWindow(start, end),)
        return found

    def decoded(self, encoded: bytes) -> tuple[Any, ...]:
        """Returns the window with these bytes, as the windows of an element; the same object each time."""
        found = self._by_bytes.get(encoded)
        if found is None:
            found = self._by_bytes[encoded] = (self._impl.decode(encoded),)
        return found

    def forget(self) -> None:
        """Forgets the windows that were decoded."""
        self._by_bounds.clear()
        self._by_bytes.clear()


def fold(window: bytes, key: bytes) -> bytes:
    """Puts the bytes of a window in front of those of a key.

    >>> unfold(fold(b"window", b"key"))
    (b'window', b'key')
    """
    return len(window).to_bytes(4, "big") + window + key


def unfold(folded: bytes) -> tuple[bytes, bytes]:
    """Returns the window and the key that `fold` put together."""
    end = 4 + int.from_bytes(folded[:4], "big")
    return folded[4:end], folded[end:]


# Elements


class DecodedValues(Sequence[Any]):
    """The values of a group that is larger than memory, decoded as one iterates."""

    def __init__(self, encoded: Sequence[bytes], decode: Callable[[bytes], Any]) -> None:
        self._encoded, self._decode = encoded, decode

    def __iter__(self) -> Iterator[Any]:
        return map(self._decode, self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __reduce__(self) -> Any:
        return list, (list(self),)


@dataclass
class ElementBorder:
    """Elements of one collection, in one form."""

    form: Form
    coder: Coder
    windows: WindowBorder

    def __post_init__(self) -> None:
        if self.form is Form.CODED:
            impl = self.coder.get_impl()
            self._encode, self._decode = impl.encode, impl.decode
            return
        key, value = self.coder.key_coder(), self.coder.value_coder()
        if self.form is Form.GROUPS:
            value = value._elem_coder if hasattr(value, "_elem_coder") else value.value_coder()
        self._encode_key, self._decode_key = key.get_impl().encode, key.get_impl().decode
        self._encode_value, self._decode_value = value.get_impl().encode, value.get_impl().decode

    # Out of a stage

    def to_bundles(self, values: list[WindowedValue]) -> Iterator[Bundle]:
        """Makes bundles of what a sink took: one for each run of values of one pane."""
        return map(self.packed, self.objects(values))

    def objects(self, values: list[WindowedValue]) -> Iterator[Bundle]:
        """Makes bundles of the values themselves; where windows are no intervals, each with its window before it."""
        run: list[WindowedValue] = []
        for value in values:
            if run and value.pane_info is not run[-1].pane_info and value.pane_info != run[-1].pane_info:
                yield self._objects(run)
                run = []
            run.append(value)
        if run:
            yield self._objects(run)

    def _objects(self, values: list[WindowedValue]) -> Bundle:
        pane, kind = _pane_of(values[0]), self.windows.kind
        if kind is WindowKind.GLOBAL:
            times = to_times([value.timestamp_micros for value in values])
            return _timed(Bundle([value.value for value in values], times, pane=pane))
        pairs = [(value, window) for value in values for window in value.windows]
        bounds = np.array([self.windows.bounds(window) for _, window in pairs], np.int64).reshape(-1, 2)
        folded = kind is WindowKind.FOLDED
        elements = [(window, value.value) if folded else value.value for value, window in pairs]
        times = to_times([value.timestamp_micros for value, _ in pairs])
        return Bundle(elements, times, bounds[:, 0].copy(), bounds[:, 1].copy(), pane)

    def packed(self, bundle: Bundle) -> Bundle:
        """Encodes the elements of a bundle of objects."""
        if self.windows.kind is not WindowKind.FOLDED:
            return bundle.with_elements(self._encoded(bundle.elements))
        windows = [self.windows.bytes_of(window) for window, _ in bundle.elements]
        elements = self._encoded([value for _, value in bundle.elements])
        if self.form is Form.PAIRS:
            elements = [(fold(window, key), value) for window, (key, value) in zip(windows, elements, strict=True)]
        else:
            elements = list(zip(windows, elements, strict=True))
        return bundle.with_elements(elements)

    def _encoded(self, values: list[Any]) -> list[Any]:
        if self.form is Form.CODED:
            return list(map(self._encode, values))
        encode_key, encode_value = self._encode_key, self._encode_value
        return [(encode_key(key), encode_value(value)) for key, value in values]

    # Into a stage

    def from_bundle(self, bundle: Bundle) -> Iterator[WindowedValue]:
        """Makes windowed values of a bundle."""
        elements, windows = self.placed(bundle)
        return _windowed(bundle, map(self.decoded, elements), windows)

    def opened(self, bundle: Bundle) -> Bundle:
        """Decodes the elements of a bundle; its windows have to be intervals."""
        return bundle.with_elements(list(map(self.decoded, bundle.elements)))

    def values(self, bundle: Bundle) -> Iterator[WindowedValue]:
        """Makes windowed values of a bundle of objects; its windows have to be intervals."""
        return _windowed(bundle, bundle.elements, self._intervals(bundle))

    def _intervals(self, bundle: Bundle) -> Iterable[tuple[Any, ...]]:
        return (
            repeat(_GLOBAL) if self.windows.kind is WindowKind.GLOBAL else map(self.windows.interval, bundle.windows())
        )

    def placed(self, bundle: Bundle) -> tuple[Iterable[Any], Iterable[tuple[Any, ...]]]:
        """Returns the elements of a bundle without their windows, and the windows."""
        windows = self.windows
        if windows.kind is not WindowKind.FOLDED:
            return bundle.elements, self._intervals(bundle)
        if self.form is Form.CODED:
            return [element for _, element in bundle.elements], [windows.decoded(each) for each, _ in bundle.elements]
        unfolded = [(unfold(folded), value) for folded, value in bundle.elements]
        return (
            [(key, value) for (_, key), value in unfolded],
            [windows.decoded(window) for (window, _), _ in unfolded],
        )

    def decoded(self, element: Any) -> Any:
        """Decodes one element."""
        if self.form is Form.CODED:
            return self._decode(element)
        key, value = element
        if self.form is Form.PAIRS:
            return self._decode_key(key), self._decode_value(value)
        if isinstance(value, list):
            return self._decode_key(key), list(map(self._decode_value, value))
        return self._decode_key(key), DecodedValues(value, self._decode_value)


def _windowed(bundle: Bundle, elements: Iterable[Any], windows: Iterable[tuple[Any, ...]]) -> Iterator[WindowedValue]:
    """Makes windowed values of elements with the times and the pane of a bundle."""
    pane = from_pane(bundle.pane)
    if bundle.times is None:
        micros: Iterable[int] = repeat(from_times(np.array([bundle.time]))[0])
    else:
        micros = from_times(bundle.times)
    create = windowed_value.create
    for element, time, placed in zip(elements, micros, windows, strict=False):
        yield create(element, time, placed, pane)


def _timed(bundle: Bundle) -> Bundle:
    """Returns the bundle with one time in place of times, if all are alike."""
    times = bundle.times
    if times is not None and len(times) and (times == times[0]).all():
        bundle.times, bundle.time = None, int(times[0])
    return bundle
