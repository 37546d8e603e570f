"""Operators: what a worker does with a bundle for each element-by-element transform.

An operator is planned on the driver, bound to the side inputs of a run, sent to the workers, opened there, turns
bundles into bundles, and is closed. Functions run over whole lists in C where they can; a failing one names the
element it failed on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any, Self, TypeVar

import numpy as np

from headrace.engine.columns.arrays import is_identity
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle, Int64Array
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.sidevalues import SideResolver, SideValue
from headrace.engine.worker.usedcolumns import used_columns
from headrace.model.dofn import DoFn, TaggedOutput, TimestampedValue, Wrapped, params_of
from headrace.model.elementwise import SideInput
from headrace.model.errors import PipelineError
from headrace.model.times import SECOND, Instant, instant
from headrace.model.windows import Assigned, CountWindows, GlobalWindows, Window, WindowFn

Tagged = tuple[str | None, Bundle]
"""A bundle for the readers of one output; None is the main output."""
TaggedColumns = tuple[str | None, Bundle | ColumnBundle]
"""The same, where columns may stay columns."""
B = TypeVar("B", Bundle, Bundle | ColumnBundle)


@dataclass
class Operator:
    """The operator of one transform, which its label names."""

    label: str

    @property
    def dead_tag(self) -> str | None:
        """The tag whose elements are counted as dead letters."""
        return None

    @property
    def side_inputs(self) -> Sequence[SideInput]:
        """The side inputs that it is not bound to yet."""
        return ()

    @property
    def used(self) -> frozenset[str] | None:
        """The attributes of its elements that it uses; None if it may need whole elements."""
        return None

    @property
    def passes_elements(self) -> bool:
        """Whether elements pass it as they are, also where it does not need all of them itself."""
        return False

    def bind(self, resolve: SideResolver) -> Self:
        """Returns a copy with values in place of side inputs; the operator itself, if it has none."""
        return self

    def open(self) -> None:
        """Runs once per task, before the first bundle."""

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        raise NotImplementedError

    def run_columns(self, bundle: ColumnBundle) -> Iterator[TaggedColumns]:
        """Runs over rows of one pane that are columns still."""
        return self.run(bundle.whole())

    def close(self) -> Iterator[Tagged]:
        """Runs once per task, after the last bundle."""
        return iter(())


@dataclass
class ColumnsOperator(Operator):
    """An operator on whole bundles of columns, which gives such again; windows that are still to be applied stay so."""

    def run_whole(self, bundle: ColumnBundle) -> Iterator[ColumnBundle]:
        raise NotImplementedError


@dataclass
class Call:
    """A user's function with its further arguments: constants, side inputs, and what it asks of the element.

    A planned call has the model's side inputs among its arguments; one that is bound to a run has their values.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    star: bool = False  # the parts of the element are the first arguments

    def __post_init__(self) -> None:
        self.params = params_of(self.fn)
        arguments = (*self.args, *self.kwargs.values())
        self.side_inputs = [argument for argument in arguments if isinstance(argument, SideInput)]
        self.sides_windowed = any(argument.windowed for argument in arguments if isinstance(argument, SideValue))
        self.per_element = bool(self.params) or self.sides_windowed
        self.used = None if self.star or self.per_element else used_columns(self.fn)

    def bind(self, resolve: SideResolver) -> Call:
        """Returns a copy with what `resolve` gives for each side input, in the order of the arguments."""
        if not self.side_inputs:
            return self

        def argument(planned: Any) -> Any:
            return resolve(planned) if isinstance(planned, SideInput) else planned

        args = tuple(map(argument, self.args))
        return replace(self, args=args, kwargs={name: argument(planned) for name, planned in self.kwargs.items()})

    def over(self, bundle: Bundle | None) -> Callable[..., Iterator[Any]]:
        """Returns a function from an iterator over the bundle's elements to an iterator over results."""
        if not (self.args or self.kwargs or self.params):
            return partial(itertools.starmap if self.star else map, self.fn)
        if not self.per_element:
            args = [a.value() if isinstance(a, SideValue) else a for a in self.args]
            kwargs = {n: a.value() if isinstance(a, SideValue) else a for n, a in self.kwargs.items()}
            fn = self.fn
            if self.star:
                return lambda elements: (fn(*element, *args, **kwargs) for element in elements)
            return lambda elements: (fn(element, *args, **kwargs) for element in elements)
        assert bundle is not None
        return partial(self._with_context, bundle)

    def over_columns(self, bundle: ColumnBundle, *, in_turn: bool = False) -> tuple[Iterator[Any], Iterator[Any]]:
        """Returns the iterator over the results for elements that are columns, and the one that counts these.

        The call asks nothing of an element's time, window and pane. `in_turn`: each result is used up before the next.
        """
        if not (self.args or self.kwargs or self.star):
            return bundle.results(self.fn, self.used, in_turn=in_turn)
        elements, cursor = bundle.seen(self.used)
        return self._when_asked(elements), cursor

    def _when_asked(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Yields the results; side inputs are only built when the first is asked for, and whoever asks is to blame."""
        yield from self.over(None)(elements)

    def _with_context(self, bundle: Bundle, elements: Iterator[Any]) -> Iterator[Any]:
        times, windows = bundle.all_times().tolist(), bundle.windows()
        if any(param.kind == "watermark" for param in self.params.values()):
            raise PipelineError(
                "a function asks for the watermark by WatermarkParam, but only a DoFn with state or timers has one; "
                "declare a state, or leave the parameter out"
            )
        for element, time, window in zip(elements, times, windows, strict=True):
            context = {"timestamp": Instant(time), "window": Window(*window), "pane": bundle.pane, "element": element}
            filled = {name: context[param.kind] for name, param in self.params.items()}
            args = [a.value(window) if isinstance(a, SideValue) else a for a in self.args]
            kwargs = {n: a.value(window) if isinstance(a, SideValue) else a for n, a in self.kwargs.items()}
            yield self.fn(*(element if self.star else (element,)), *args, **{**filled, **kwargs})


@dataclass
class CallOperator(Operator):
    """An operator that calls a user's function for each element; its subclasses say what becomes of the results."""

    call: Call

    @property
    def side_inputs(self) -> Sequence[SideInput]:
        return self.call.side_inputs

    @property
    def used(self) -> frozenset[str] | None:
        return self.call.used

    def bind(self, resolve: SideResolver) -> Self:
        return replace(self, call=self.call.bind(resolve))

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            results = list(self.results(self.call.over(bundle)(elements)))
        return self.outputs(bundle, results)

    def run_columns(self, bundle: ColumnBundle) -> Iterator[TaggedColumns]:
        """Runs over columns; whole elements are only made if the function, or what follows, needs them."""
        if self.call.per_element:
            return self.run(bundle.whole())
        returned, cursor = self.call.over_columns(bundle)
        with blame(self.label, bundle, cursor):
            results = list(self.results(returned))
        return self.column_outputs(bundle, results)

    def results(self, returned: Iterator[Any]) -> Iterator[Any]:
        """Evaluates what the function returned for each element, while that element is the one to blame."""
        return returned

    def outputs(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        """Makes bundles of all results, one result for each element."""
        raise NotImplementedError

    def column_outputs(self, bundle: ColumnBundle, results: list[Any]) -> Iterator[TaggedColumns]:
        """Makes bundles of all results; here, without looking at the elements."""
        return self.outputs(bundle.with_elements([]), results)


@dataclass
class MapOperator(CallOperator):
    """Gives one output per element."""

    def outputs(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        return split_by_tag(bundle.with_elements(results), ())


@dataclass
class KeyByOperator(CallOperator):
    """Gives pairs of the function's result and the element."""

    @property
    def used(self) -> frozenset[str] | None:
        return None

    def outputs(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        yield None, bundle.with_elements(list(zip(results, bundle.elements, strict=True)))

    def column_outputs(self, bundle: ColumnBundle, results: list[Any]) -> Iterator[TaggedColumns]:
        return self.outputs(bundle.whole(), results)


@dataclass
class FilterOperator(CallOperator):
    """Gives the elements for which the function is true; of columns, columns."""

    @property
    def passes_elements(self) -> bool:
        return True

    def results(self, returned: Iterator[Any]) -> Iterator[Any]:
        return map(bool, returned)

    def outputs(self, bundle: Bundle, results: list[Any]) -> Iterator[Tagged]:
        passed = list(itertools.compress(bundle.elements, results))
        if len(passed) == len(results):
            yield None, bundle
        elif passed:
            yield None, bundle.with_elements(passed) if bundle.bare else bundle.take(np.flatnonzero(results), passed)

    def column_outputs(self, bundle: ColumnBundle, results: list[Any]) -> Iterator[TaggedColumns]:
        if any(results):
            yield None, bundle if all(results) else bundle.filter(results)


@dataclass
class FlatMapOperator(CallOperator):
    """Gives any number of outputs per element, each perhaps for another tag or with a time of its own."""

    tags: tuple[str, ...] = ()

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            yield from self.outputs(bundle, self.call.over(bundle)(elements))

    def run_columns(self, bundle: ColumnBundle) -> Iterator[TaggedColumns]:
        if self.call.per_element:
            yield from self.run(bundle.whole())
            return
        returned, cursor = self.call.over_columns(bundle, in_turn=True)
        with blame(self.label, bundle, cursor):
            yield from self.outputs(bundle.with_elements([]), returned)

    def results(self, returned: Iterator[Any]) -> Iterator[Any]:
        return (() if result is None else list(result) for result in returned)

    def outputs(self, bundle: Bundle, results: Iterable[Any]) -> Iterator[Tagged]:
        for piece in flattened(bundle, results):
            yield from split_by_tag(piece, self.tags)


@dataclass
class LifeCycle:
    """The life cycle of a DoFn: it is set up, starts and finishes bundles, and is torn down."""

    label: str
    fn: DoFn
    window: WindowOperator  # of what finish_bundle gives
    tags: tuple[str, ...] = ()

    def open(self) -> None:
        with blame(self.label):
            self.fn.setup()

    def framed(self, outputs: Iterator[tuple[str | None, B]], last: Bundle) -> Iterator[tuple[str | None, B | Bundle]]:
        """Gives outputs between the start and the finish of a bundle, which may add some, to be placed like `last`."""
        with blame(self.label):
            self.fn.start_bundle()
        yield from outputs
        with blame(self.label):
            elements = list(self.fn.finish_bundle() or ())
        if elements:
            for tag, more in split_by_tag(last.with_elements(elements), self.tags):
                yield from ((tag, windowed) for _, windowed in self.window.run(more))

    def close(self) -> None:
        with blame(self.label):
            self.fn.teardown()


@dataclass
class ParDoOperator(Operator):
    """Runs a DoFn: `process` gives outputs of the elements, within the DoFn's life cycle."""

    process: Operator
    life: LifeCycle

    @property
    def dead_tag(self) -> str | None:
        return self.process.dead_tag

    @property
    def side_inputs(self) -> Sequence[SideInput]:
        return self.process.side_inputs

    @property
    def used(self) -> frozenset[str] | None:
        return self.process.used

    def bind(self, resolve: SideResolver) -> Self:
        return replace(self, process=self.process.bind(resolve))

    def open(self) -> None:
        self.life.open()

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        last = Bundle([], pane=bundle.pane, retraction=bundle.retraction)
        return self.life.framed(self.process.run(bundle), last)

    def run_columns(self, bundle: ColumnBundle) -> Iterator[TaggedColumns]:
        return self.life.framed(self.process.run_columns(bundle), Bundle([], pane=bundle.pane))

    def close(self) -> Iterator[Tagged]:
        self.life.close()
        return iter(())


@dataclass
class TimesOperator(Operator):
    """Sets the event times of elements."""

    fn: Callable[[Any], Any]

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            results = list(map(self.fn, elements))
            if set(map(type, results)) == {int} and max(map(abs, results)) < 2**40:  # seconds, the usual case
                times = np.array(results, np.int64) * SECOND
            else:
                times = np.array(list(map(instant, results)), np.int64)
        yield None, replace(bundle, times=times)


@dataclass
class WindowOperator(Operator):
    """Assigns windows; an element of several windows becomes several."""

    window: WindowFn

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        if isinstance(self.window, GlobalWindows):
            yield None, replace(bundle, starts=None, ends=None)
            return
        times = bundle.all_times()
        keyed = self.window.keyed and not isinstance(self.window, CountWindows)
        with blame(self.label):
            keys = parts_of(bundle)[0] if keyed else None
        index, start, end = self.assign(times, keys)
        if is_identity(index, len(times)):
            yield None, replace(bundle, times=times, starts=start, ends=end)
        else:
            elements = [bundle.elements[i] for i in index.tolist()]
            yield None, replace(bundle, elements=elements, times=times[index], starts=start, ends=end)

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        """Returns the windows of elements with these times; `keys` are needed only if windows depend on them."""
        with blame(self.label):
            if isinstance(self.window, CountWindows):  # elements are numbered when they are grouped
                return self.window.assign_ordinals(np.zeros(len(times), np.int64))
            return self.window.assign(times, keys)


@dataclass
class ForEachOperator(Operator):
    """Calls a function for its effect."""

    fn: Callable[[Any], Any]

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        elements = iter(bundle.elements)
        with blame(self.label, bundle.elements, elements):
            for element in elements:
                self.fn(element)
        return iter(())


def check_pairs(bundle: Bundle) -> None:
    """Refuses elements that are not pairs; a text of two letters is not one, though it can be unpacked."""
    if all(issubclass(kind, tuple | list) for kind in bundle.types()):
        return  # whoever unpacks them will meet one that has not two parts
    raise not_pairs(bundle)


def not_pairs(bundle: Bundle) -> TypeError:
    """Makes the error for a bundle with elements that are not pairs."""
    bad = next((e for e in bundle.elements if not (isinstance(e, tuple | list) and len(e) == 2)), None)
    return TypeError(
        f"elements must be pairs (key, value), got {bad!r:.200}; put KeyBy(...) or a Map to pairs before it"
    )


def parts_of(bundle: Bundle) -> tuple[list[Any], list[Any]]:
    """Returns keys and values of a bundle of pairs; refuses one with an element that is not a pair."""
    check_pairs(bundle)
    if set(map(len, bundle.elements)) != {2}:
        raise not_pairs(bundle)
    return list(map(itemgetter(0), bundle.elements)), list(map(itemgetter(1), bundle.elements))


def flattened(bundle: Bundle, results: Iterable[Iterable[Any] | None]) -> Iterator[Bundle]:
    """Gives the outputs of all results, in bundles of bounded size; a result of None has no output."""
    iterables = (() if result is None else result for result in results)
    if bundle.bare:
        outputs = itertools.chain.from_iterable(iterables)
        while piece := list(itertools.islice(outputs, BUNDLE_SIZE)):
            yield bundle.with_elements(piece)
        return
    piece, index = [], []
    for position, result in enumerate(iterables):
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


def split_by_tag(bundle: Bundle, tags: tuple[str, ...]) -> Iterator[Tagged]:
    """Splits a bundle by the tags of its elements, and takes tags and timestamps out of their wrappers."""
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
