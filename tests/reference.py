"""The model in batch, defined naively: a collection is a list of elements, a transform an obvious loop over them.

`run(graph)` gives what every collection of a graph holds; tests hold the engine to it. Nothing here is fast, nothing
comes from the engine. Triggers and panes of a stream are to grow here, too: they refine `group_by_key`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import headrace as hr
from headrace.model.algebra import tie_break
from headrace.model.dofn import params_of
from headrace.model.elementwise import Elementwise, SideInput
from headrace.model.panes import NO_PANE, ONLY_PANE, Windowing
from headrace.model.pipeline import Graph, Node
from headrace.model.sinks import Collected
from headrace.model.times import MIN_TIME, Instant, instant
from headrace.model.windows import GLOBAL_WINDOW


class Element(NamedTuple):
    """A value, where it is in time, and which firing it came from."""

    value: Any
    timestamp: int = MIN_TIME
    window: hr.Window = GLOBAL_WINDOW
    pane: hr.PaneInfo = NO_PANE


Held = dict[hr.PCollection, list[Element]]


def run(graph: Graph) -> Held:
    """The elements of every collection of a graph."""
    held: Held = {}
    for node in graph:
        for tag, element in outputs(node, held):
            held.setdefault(next(pc for pc in node.outputs if pc.tag == tag), []).append(element)
        for pc in node.outputs:
            held.setdefault(pc, [])
    return held


def gathered(graph: Graph) -> list[tuple[Collected, list[Element]]]:
    """What each Collect of a graph must have gathered."""
    held = run(graph)
    return [(n.transform.collected, held[n.inputs[0]]) for n in graph if isinstance(n.transform, hr.Collect)]


def outputs(node: Node, held: Held) -> Iterable[tuple[str | None, Element]]:
    """What one node gives, with the tag of the output it is for."""
    transform: Any = node.transform
    inputs = [held[pc] for pc in node.inputs]
    made: Iterable[Element] = ()
    match transform:
        case Elementwise():
            return elementwise(transform, inputs[0], held)
        case hr.Create():
            made = map(Element, transform.elements, (MIN_TIME if time is None else time for time in transform.times))
        case hr.WithTimestamps():
            made = [e._replace(timestamp=instant(transform.fn(e.value))) for e in inputs[0]]
        case hr.Flatten() | hr.Reshuffle():
            made = itertools.chain(*inputs)
        case hr.WindowInto():
            made = window_into(inputs[0], transform.windowing)
        case hr.GroupByKey():
            made = group_by_key(inputs[0], node.inputs[0].windowing)
        case hr.CombinePerKey():
            made = combine_per_key(inputs[0], node.inputs[0].windowing, transform.fn)
        case _ if node.outputs:
            raise NotImplementedError(f"the reference does not define {transform!r}")
    return ((None, element) for element in made)


# One element at a time


def elementwise(transform: Elementwise, elements: list[Element], held: Held) -> Iterator[tuple[str | None, Element]]:
    main = transform.outputs[0]
    fn: Callable[..., Any] = transform.fn.process if isinstance(transform, hr.ParDo) else transform.fn
    for element in elements:
        args = [side_input(a, element, held) for a in transform.args]
        kwargs = {name: side_input(a, element, held) for name, a in transform.kwargs.items()}
        context = {**element._asdict(), "timestamp": Instant(element.timestamp), "element": element.value}
        asked = {name: context[param.what] for name, param in params_of(fn).items()}
        parts = element.value if isinstance(transform, hr.MapTuple) else (element.value,)
        result = fn(*parts, *args, **{**asked, **kwargs})
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


def side_input(argument: Any, main: Element, held: Held) -> Any:
    """An argument as the function gets it; of a side input, the window that holds the last instant of the element's."""
    if not isinstance(argument, SideInput):
        return argument
    elements, windowing = held[argument.collection], argument.collection.windowing
    if not windowing.is_global:
        *_, seen = windowing.window.windows_of(main.window.max_timestamp(), None)
        elements = [e for e in elements if e.window == seen]
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
    """The elements of one key by window, after windows that merge have merged."""
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
    """Windows in order, by position, together as long as one starts before those before it have ended."""
    groups: list[list[int]] = []
    for place, window in enumerate(windows):
        if groups and window.start < max(windows[before].end for before in groups[-1]):
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def time_of(window: hr.Window, group: list[Element], windowing: Windowing) -> int:
    """The timestamp of a group. Ordinals have no last instant: there the last element tells."""
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
        by_key.setdefault(met(element.value[0]), []).append(element)
    for mine in by_key.values():
        for window, group in groups_of(mine, windowing):
            value = mine[0].value[0], [e.value[1] for e in group]
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


# When are things the same?


NAN = object()


def met(key: Any) -> Hashable:
    """Keys meet if Python finds them equal; and so do NaNs, which it does not."""
    if isinstance(key, tuple | frozenset):
        return tuple(map(met, key)) if isinstance(key, tuple) else frozenset(map(met, key))
    return key if key == key else NAN


def normal(value: Any) -> Hashable:
    """A value without what nothing promises: the order of lists, and which of several equal keys a group shows."""
    if isinstance(value, Mapping):
        return "map", frozenset((normal(k), normal(v)) for k, v in value.items())
    if isinstance(value, tuple):
        return "tuple", *map(normal, value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes | range):
        return "bag", frozenset(Counter(map(normal, value)).items())
    return value if value == value else NAN


def multiset(elements: Iterable[Any]) -> Counter[Hashable]:
    """Elements as a multiset of (value, timestamp, window): equal for two runs that gave the same."""
    return Counter((normal(e.value), e.timestamp, tuple(e.window)) for e in elements)
