"""Operators: what a worker does with a bundle for each element-by-element transform.

An operator is made on the driver, travels to the workers, is opened there, turns bundles into bundles, and is closed.
Functions run over whole lists in C where they can; a failing one names the element it failed on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle, Int64Array
from headrace.engine.worker.sidevalues import SideValue
from headrace.model.dofn import DoFn, TaggedOutput, TimestampedValue, Wrapped, params_of
from headrace.model.times import SECOND, Instant, instant
from headrace.model.windows import CountWindows, GlobalWindows, Window, WindowFn

Tagged = tuple[str | None, Bundle]


@dataclass
class Op:
    """An operator of one transform, which its label names. What it gives for the tag `dead` is counted as such."""

    label: str
    dead: ClassVar[str | None] = None

    def open(self) -> None:
        """Once per task, before the first bundle."""

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        raise NotImplementedError

    def close(self) -> Iterator[Tagged]:
        """Once per task, after the last bundle."""
        return iter(())


@dataclass
class Call:
    """A user's function with its further arguments: constants, side inputs, and what it asks of the element."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    star: bool = False  # the parts of the element are the first arguments

    def __post_init__(self) -> None:
        self.params = params_of(self.fn)
        self.sides = [a for a in (*self.args, *self.kwargs.values()) if isinstance(a, SideValue)]
        self.per_element = bool(self.params) or any(side.windowed for side in self.sides)

    def over(self, bundle: Bundle) -> Callable[..., Iterator[Any]]:
        """A function from an iterator over the bundle's elements to an iterator over results."""
        if not (self.args or self.kwargs or self.params):
            return partial(itertools.starmap if self.star else map, self.fn)
        if not self.per_element:
            args = [a.value() if isinstance(a, SideValue) else a for a in self.args]
            kwargs = {n: a.value() if isinstance(a, SideValue) else a for n, a in self.kwargs.items()}
            fn = self.fn
            if self.star:
                return lambda elements: (fn(*element, *args, **kwargs) for element in elements)
            return lambda elements: (fn(element, *args, **kwargs) for element in elements)
        return partial(self._with_context, bundle)

    def _with_context(self, bundle: Bundle, elements: Iterator[Any]) -> Iterator[Any]:
        times, windows = bundle.all_times().tolist(), bundle.windows()
        for element, time, window in zip(elements, times, windows, strict=True):
            context = {"timestamp": Instant(time), "window": Window(*window), "pane": bundle.pane, "element": element}
            filled = {name: context[param.what] for name, param in self.params.items()}
            args = [a.value(window) if isinstance(a, SideValue) else a for a in self.args]
            kwargs = {n: a.value(window) if isinstance(a, SideValue) else a for n, a in self.kwargs.items()}
            yield self.fn(*(element if self.star else (element,)), *args, **{**filled, **kwargs})


@dataclass
class CallOp(Op):
    """An operator that calls a user's function for each element."""

    call: Call

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            results = list(self.results(self.call.over(bundle)(elements)))
        return self.given(bundle, results)

    def results(self, returned: Iterator[Any]) -> Iterator[Any]:
        """What is made of each thing the function returned while its element is at hand, which is to blame."""
        return returned

    def given(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        """What is made of all results, one for each element."""
        raise NotImplementedError


@dataclass
class MapOp(CallOp):
    """One output per element."""

    def given(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        return sorted_out(bundle.with_elements(results), ())


@dataclass
class KeyByOp(CallOp):
    """Pairs of the function's result and the element."""

    def given(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        yield None, bundle.with_elements(list(zip(results, bundle.elements, strict=True)))


@dataclass
class FilterOp(CallOp):
    """The elements for which the function is true."""

    def results(self, returned: Iterator[Any]) -> Iterator[Any]:
        return map(bool, returned)

    def given(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        kept = list(itertools.compress(bundle.elements, results))
        if len(kept) == len(results):
            yield None, bundle
        elif kept:
            yield None, bundle.with_elements(kept) if bundle.bare else bundle.take(np.flatnonzero(results), kept)


@dataclass
class FlatMapOp(CallOp):
    """Any number of outputs per element, each perhaps for another tag or with a time of its own."""

    tags: tuple[str, ...] = ()

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            yield from self.given(bundle, self.call.over(bundle)(elements))

    def results(self, returned: Iterator[Any]) -> Iterator[Any]:
        return (() if result is None else list(result) for result in returned)

    def given(self, bundle: Bundle, results: Iterable[Any]) -> Iterator[Tagged]:
        for piece in _flattened(bundle, results):
            yield from sorted_out(piece, self.tags)


@dataclass
class ParDoOp(FlatMapOp):
    """A DoFn with its life cycle."""

    fn: DoFn = field(kw_only=True)
    window: WindowOp = field(kw_only=True)

    def open(self) -> None:
        with blame(self.label):
            self.fn.setup()

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        return self.framed(self.processed(bundle), Bundle([], pane=bundle.pane, retraction=bundle.retraction))

    def processed(self, bundle: Bundle) -> Iterator[Tagged]:
        """What `process` gives for the elements of a bundle."""
        return super().run(bundle)

    def framed(self, outputs: Iterator[Tagged], last: Bundle) -> Iterator[Tagged]:
        """Outputs between the start and the end of a bundle, which may give some more, to be placed like `last`."""
        with blame(self.label):
            self.fn.start_bundle()
        yield from outputs
        with blame(self.label):
            elements = list(self.fn.finish_bundle() or ())
        if elements:
            for tag, more in sorted_out(last.with_elements(elements), self.tags):
                yield from ((tag, windowed) for _, windowed in self.window.run(more))

    def close(self) -> Iterator[Tagged]:
        with blame(self.label):
            self.fn.teardown()
        return iter(())


@dataclass
class TimesOp(Op):
    """Sets event times."""

    fn: Callable[[Any], Any]

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            given = list(map(self.fn, elements))
            if set(map(type, given)) == {int} and max(map(abs, given)) < 2**40:  # seconds, as the usual case has it
                times = np.array(given, np.int64) * SECOND
            else:
                times = np.array(list(map(instant, given)), np.int64)
        yield None, replace(bundle, times=times)


@dataclass
class WindowOp(Op):
    """Assigns windows; an element of several windows becomes several."""

    window: WindowFn

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        if isinstance(self.window, GlobalWindows):
            yield None, replace(bundle, starts=None, ends=None)
            return
        times = bundle.all_times()
        with blame(self.label):
            if isinstance(self.window, CountWindows):  # elements are numbered when they are grouped
                index, start, end = self.window.assign_ordinals(np.zeros(len(times), np.int64))
            else:
                index, start, end = self.window.assign(times, parts_of(bundle)[0] if self.window.keyed else None)
        if len(index) == len(times) and (index == np.arange(len(times))).all():
            yield None, replace(bundle, times=times, starts=start, ends=end)
        else:
            elements = [bundle.elements[i] for i in index.tolist()]
            yield None, replace(bundle, elements=elements, times=times[index], starts=start, ends=end)


@dataclass
class ForEachOp(Op):
    """Calls a function for its effect."""

    fn: Callable[[Any], Any]

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            for element in elements:
                self.fn(element)
        return iter(())


def check_pairs(bundle: Bundle) -> None:
    """Refuses elements that are not pairs; a text of two letters is none, though it can be taken apart."""
    if all(issubclass(kind, tuple | list) for kind in bundle.types()):
        return  # whoever takes them apart will find one that has not two parts
    raise not_pairs(bundle)


def not_pairs(bundle: Bundle) -> TypeError:
    """The error for a bundle with elements that are not pairs."""
    bad = next((e for e in bundle.elements if not (isinstance(e, tuple | list) and len(e) == 2)), None)
    return TypeError(
        f"elements must be pairs (key, value), got {bad!r:.200}; put KeyBy(...) or a Map to pairs before it"
    )


def parts_of(bundle: Bundle) -> tuple[list[Any], list[Any]]:
    """Keys and values of a bundle of pairs, or an error that shows what is not a pair."""
    check_pairs(bundle)
    if set(map(len, bundle.elements)) != {2}:
        raise not_pairs(bundle)
    return list(map(itemgetter(0), bundle.elements)), list(map(itemgetter(1), bundle.elements))


def _flattened(bundle: Bundle, results: Iterable[Iterable[Any] | None]) -> Iterator[Bundle]:
    """The outputs of all results, in bundles of bounded size; None is no output."""
    given = (() if result is None else result for result in results)
    if bundle.bare:
        outputs = itertools.chain.from_iterable(given)
        while piece := list(itertools.islice(outputs, BUNDLE_SIZE)):
            yield bundle.with_elements(piece)
        return
    piece, index = [], []
    for position, result in enumerate(given):
        before = len(piece)
        piece.extend(result)
        index.append((position, len(piece) - before))
        if len(piece) >= BUNDLE_SIZE:
            yield bundle.take(_repeated(index), piece)
            piece, index = [], []
    if piece:
        yield bundle.take(_repeated(index), piece)


def _repeated(index: list[tuple[int, int]]) -> Int64Array:
    positions, counts = np.array(index, np.int64).reshape(-1, 2).T
    return np.repeat(positions, counts)


def sorted_out(bundle: Bundle, tags: tuple[str, ...]) -> Iterator[Tagged]:
    """Tagged outputs to their tags, and timestamps out of their wrappers."""
    kinds = bundle.types() if Wrapped.used else ()
    if TaggedOutput not in kinds:
        yield None, _timed(bundle) if TimestampedValue in kinds else bundle
        return
    places: dict[str | None, list[int]] = {}
    for position, element in enumerate(bundle.elements):
        tag = element.tag if type(element) is TaggedOutput else None
        places.setdefault(tag, []).append(position)
    for tag, positions in places.items():
        if tag is not None and tag not in tags:
            raise ValueError(
                f"an output is tagged {tag!r}, which is not declared; write ParDo(...).with_outputs({tag!r})"
            )
        values = [bundle.elements[i] for i in positions]
        if tag is not None:
            values = [value.value for value in values]
        yield tag, _timed(bundle.take(np.array(positions, np.int64), values))


def _timed(bundle: Bundle) -> Bundle:
    times = bundle.all_times().tolist()
    elements = bundle.elements.copy()
    for position, element in enumerate(elements):
        if type(element) is TimestampedValue:
            elements[position], times[position] = element.value, element.timestamp
    return replace(bundle, elements=elements, times=np.array(times, np.int64), kinds=None)
