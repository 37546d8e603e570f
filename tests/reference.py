"""Reference implementation of the model in batch: a collection is a list of elements, a transform a plain loop.

`run(graph)` computes the elements of every collection of a graph; tests compare the engine with it. Nothing here is
fast, and nothing comes from the engine. Triggers and panes of a stream are in `reference_panes`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import headrace as hr
from headrace.model.algebra import tie_break
from headrace.model.collected import Collected
from headrace.model.dofn import params_of
from headrace.model.elementwise import Elementwise, SideInput
from headrace.model.panes import NO_PANE, ONLY_PANE, Windowing
from headrace.model.pipeline import Graph, Node
from headrace.model.times import MIN_TIME, Instant, instant
from headrace.model.windows import GLOBAL_WINDOW


class Element(NamedTuple):
    """A value with its timestamp, its window and its pane."""

    value: Any
    timestamp: int = MIN_TIME
    window: hr.Window = GLOBAL_WINDOW
    pane: hr.PaneInfo = NO_PANE


Contents = dict[hr.PCollection, list[Element]]


def run(graph: Graph) -> Contents:
    """Computes the elements of every collection of a graph."""
    contents: Contents = {}
    for node in graph:
        for tag, element in outputs(node, contents):
            contents.setdefault(next(pc for pc in node.outputs if pc.tag == tag), []).append(element)
        for pc in node.outputs:
            contents.setdefault(pc, [])
    return contents


def expected_of_collects(graph: Graph) -> list[tuple[Collected, list[Element]]]:
    """Computes the elements that each Collect of a graph must have."""
    contents = run(graph)
    return [(n.transform.collected, contents[n.inputs[0]]) for n in graph if isinstance(n.transform, hr.Collect)]


def outputs(node: Node, contents: Contents) -> Iterable[tuple[str | None, Element]]:
    """Computes the outputs of one node, each with the tag of its collection."""
    transform: Any = node.transform
    inputs = [contents[pc] for pc in node.inputs]
    elements: Iterable[Element] = ()
    match transform:
        case Elementwise():
            return elementwise(transform, inputs[0], contents)
        case hr.Create():
            elements = map(
                Element, transform.elements, (MIN_TIME if time is None else time for time in transform.times)
            )
        case hr.WithTimestamps():
            elements = [e._replace(timestamp=instant(transform.fn(e.value))) for e in inputs[0]]
        case hr.Flatten() | hr.Reshuffle():
            elements = itertools.chain(*inputs)
        case hr.WindowInto():
            elements = window_into(inputs[0], transform.windowing)
        case hr.GroupByKey():
            elements = group_by_key(inputs[0], node.inputs[0].windowing)
        case hr.CombinePerKey():
            elements = combine_per_key(inputs[0], node.inputs[0].windowing, transform.fn)
        case _ if node.outputs:
            raise NotImplementedError(f"the reference does not define {transform!r}")
    return ((None, element) for element in elements)


# One element at a time


def elementwise(
    transform: Elementwise, elements: list[Element], contents: Contents
) -> Iterator[tuple[str | None, Element]]:
    main = transform.outputs[0]
    fn: Callable[..., Any] = transform.fn.process if isinstance(transform, hr.ParDo) else transform.fn
    for element in elements:
        args = [side_input(a, element, contents) for a in transform.args]
        kwargs = {name: side_input(a, element, contents) for name, a in transform.kwargs.items()}
        context = {**element._asdict(), "timestamp": Instant(element.timestamp), "element": element.value}
        markers = {name: context[param.kind] for name, param in params_of(fn).items()}
        parts = element.value if isinstance(transform, hr.MapTuple) else (element.value,)
        result = fn(*parts, *args, **{**markers, **kwargs})
        match transform:
            case hr.Filter():
                results = [element.value] if result else []
            case hr.KeyBy():
                results = [(result, element.value)]
            case hr.Map():
                results = [result]
            case hr.FlatMap() | hr.ParDo():
                results = [] if result is None else list(result)
        for value in results:
            tag = main
            if isinstance(value, hr.TaggedOutput):
                tag, value = value.tag, value.value
            time = element.timestamp
            if isinstance(value, hr.TimestampedValue):
                value, time = value.value, value.timestamp
            yield tag, element._replace(value=value, timestamp=time)


def side_input(argument: Any, main: Element, contents: Contents) -> Any:
    """Returns an argument; of a side input, the elements of the window at the last instant of the element's window."""
    if not isinstance(argument, SideInput):
        return argument
    elements, windowing = contents[argument.collection], argument.collection.windowing
    if not windowing.is_global:
        *_, window = windowing.window.windows_of(main.window.max_timestamp(), None)
        elements = [e for e in elements if e.window == window]
    values = [e.value for e in elements]
    if isinstance(argument, hr.AsSingleton):
        return values[0] if values else argument.default
    return dict(values) if argument.shape == "dict" else values


# Windows


def window_into(elements: list[Element], windowing: Windowing) -> Iterator[Element]:
    fn = windowing.window
    for element in elements:
        if isinstance(fn, hr.CountWindows):
            windows: Iterable[tuple[int, int]] = [(0, fn.n)]  # until a grouping numbers the elements
        else:
            windows = fn.windows_of(element.timestamp, element.value[0] if fn.keyed else None)
        for window in windows:
            yield element._replace(window=hr.Window(*window))


def groups_of(elements: list[Element], windowing: Windowing) -> Iterator[tuple[hr.Window, list[Element]]]:
    """Groups the elements of one key by window; merging windows are merged."""
    fn = windowing.window
    if isinstance(fn, hr.CountWindows):
        ordered = sorted(elements, key=lambda e: (e.timestamp, repr(tie_break(e.value[1]))))
        for at in range(0, len(ordered), fn.n):
            yield hr.Window(at, at + fn.n), ordered[at : at + fn.n]
        return
    ordered = sorted(elements, key=lambda e: e.window)
    by_window = {window: list(same) for window, same in itertools.groupby(ordered, key=lambda e: e.window)}
    if not fn.merging:
        yield from by_window.items()
        return
    windows = list(by_window)
    for places in overlapping(windows) if type(fn).merge is hr.WindowFn.merge else fn.merge(windows):
        group = [element for place in places for element in by_window[windows[place]]]
        yield hr.Window(min(e.window.start for e in group), max(e.window.end for e in group)), group


def overlapping(windows: list[hr.Window]) -> list[list[int]]:
    """Groups sorted windows that overlap, by position."""
    groups: list[list[int]] = []
    for place, window in enumerate(windows):
        if groups and window.start < max(windows[before].end for before in groups[-1]):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def time_of(window: hr.Window, group: list[Element], windowing: Windowing) -> int:
    """Returns the timestamp of a group; count windows have no last instant, so there it is that of the last element."""
    times = [e.timestamp for e in group]
    if windowing.timestamp_combiner == "earliest":
        return min(times)
    if windowing.timestamp_combiner == "latest" or isinstance(windowing.window, hr.CountWindows):
        return max(times)
    return window.max_timestamp()


# By key


def group_by_key(elements: list[Element], windowing: Windowing) -> Iterator[Element]:
    by_key: dict[Hashable, list[Element]] = {}
    for element in elements:
        by_key.setdefault(canonical_key(element.value[0]), []).append(element)
    for of_key in by_key.values():
        for window, group in groups_of(of_key, windowing):
            value = of_key[0].value[0], [e.value[1] for e in group]
            yield Element(value, time_of(window, group, windowing), window, ONLY_PANE)


def combine_per_key(elements: list[Element], windowing: Windowing, fn: Any) -> Iterator[Element]:
    if fn.timed:
        elements = [e._replace(value=(e.value[0], (e.timestamp, e.value[1]))) for e in elements]
    for group in group_by_key(elements, windowing):
        key, values = group.value
        acc = fn.zero()
        for value in values:
            acc = fn.add(acc, value)
        yield group._replace(value=(key, fn.finish(acc)))


def co_group_by_key(named: Mapping[Any, list[Element]], windowing: Windowing) -> Iterator[Element]:
    tagged = [e._replace(value=(e.value[0], (name, e.value[1]))) for name, elements in named.items() for e in elements]
    for group in group_by_key(tagged, windowing):
        key, pairs = group.value
        yield group._replace(value=(key, {name: [v for n, v in pairs if n == name] for name in named}))


# When are values the same?


NAN = object()


def canonical_key(key: Any) -> Hashable:
    """Returns an object that is equal for equal keys; all NaNs are one key, although Python says that they differ."""
    if isinstance(key, tuple | frozenset):
        return tuple(map(canonical_key, key)) if isinstance(key, tuple) else frozenset(map(canonical_key, key))
    return key if key == key else NAN


def canonical_value(value: Any) -> Hashable:
    """Returns a value without what may differ between runs: the order of lists, and which of equal keys a group has."""
    if isinstance(value, Mapping):
        return "map", frozenset((canonical_value(k), canonical_value(v)) for k, v in value.items())
    if isinstance(value, tuple):
        return "tuple", *map(canonical_value, value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes | range):
        return "bag", frozenset(Counter(map(canonical_value, value)).items())
    return value if value == value else NAN


def multiset(elements: Iterable[Any]) -> Counter[Hashable]:
    """Counts elements by (value, timestamp, window): the result is equal for two runs with the same elements."""
    return Counter((canonical_value(e.value), e.timestamp, tuple(e.window)) for e in elements)
