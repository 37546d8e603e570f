"""Transforms of one element at a time: ParDo and its short forms, side inputs, dead letters, timestamps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import GenericAlias
from typing import Any, ClassVar, Final, Self

from headrace.model.dofn import DoFn, TaggedOutput
from headrace.model.errors import PipelineError
from headrace.model.pipeline import PCollection, Primitive, PTransform, TaggedCollections
from headrace.model.schema import item_type, return_type


@dataclass(frozen=True, eq=False)
class SideInput:
    """A collection that a function gets as a further argument; see AsDict, AsList, AsSingleton, AsIter."""

    collection: PCollection
    shape: ClassVar[str]


@dataclass(frozen=True, eq=False)
class AsDict(SideInput):
    """Passes a collection of pairs to a function as a dict.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     prices = p | "prices" >> hr.Create([("tea", 3), ("milk", 1)])
    ...     bill = p | hr.Create(["tea"]) | hr.Map(lambda item, prices: prices[item], hr.AsDict(prices)) | hr.Collect()
    >>> list(bill)
    [3]
    """

    shape = "dict"


@dataclass(frozen=True, eq=False)
class AsList(SideInput):
    """Passes a collection to a function as a list.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     stop = p | "stop" >> hr.Create(["the"])
    ...     words = p | hr.Create(["the", "mill"])
    ...     content = words | hr.Filter(lambda w, stop: w not in stop, hr.AsList(stop)) | hr.Collect()
    >>> list(content)
    ['mill']
    """

    shape = "list"


@dataclass(frozen=True, eq=False)
class AsIter(SideInput):
    """Passes a collection to a function as an iterable.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     marks = p | "marks" >> hr.Create([1, 2])
    ...     sums = p | hr.Create([10]) | hr.Map(lambda x, marks: x + sum(marks), hr.AsIter(marks)) | hr.Collect()
    >>> list(sums)
    [13]
    """

    shape = "iter"


@dataclass(frozen=True, eq=False)
class AsSingleton(SideInput):
    """Passes the one element of a collection to a function, or `default` if the collection is empty.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     most = p | "all" >> hr.Create([2, 4]) | hr.CombineGlobally(max)
    ...     parts = p | hr.Create([1, 2]) | hr.Map(lambda x, most: x / most, hr.AsSingleton(most)) | hr.Collect()
    >>> sorted(parts)
    [0.25, 0.5]
    """

    default: Any = ...
    shape = "singleton"


DEAD_LETTERS: Final = "dead_letters"
"""The tag of the output with the elements that a function failed on."""


@dataclass(frozen=True)
class DeadLetter:
    """An element that a function failed on, with the transform's label, the error's type and its message.

    From a source, it is a bad record as text, with its position: the file, or topic/partition@offset.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     numbers = p | hr.Create(["1", "x"]) | "parse" >> hr.Map(int).with_exception_handling()
    ...     good, dead = numbers.main | hr.Collect(), numbers.dead_letters | hr.Collect()
    >>> list(good), dead[0].element, dead[0].label, dead[0].error
    ([1], 'x', 'parse', 'ValueError')
    """

    element: Any
    label: str
    error: str
    message: str
    position: str | None = None


class Elementwise(Primitive):
    """A primitive that calls a function for each element, with side inputs as further arguments."""

    handles_exceptions = False

    def __init__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if not callable(fn):
            raise PipelineError(f"{type(self).__name__} takes a function, got {fn!r}; wrap it: lambda x: ...")
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def default_label(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"{type(self).__name__}({'λ' if name == '<lambda>' else name})"

    def with_exception_handling(self) -> Self:
        """Returns this transform with a further output `dead_letters`: a DeadLetter for each element it fails on.

        The dead letter has the element's timestamp and window. What the function emitted for the element before the
        error is dropped. The main output is called `main`, unless it has a name. The function is called once for each
        element; its side effects, in its DoFn or elsewhere, are not undone. An error in `start_bundle` or
        `finish_bundle` belongs to no element and still ends the run.
        """
        handling = copy.copy(self)
        main, *tags = self.outputs
        handling.outputs = (main or "main", *tags, *([] if self.handles_exceptions else [DEAD_LETTERS]))
        handling.handles_exceptions = True
        return handling

    def side_inputs(self) -> tuple[PCollection, ...]:
        return tuple(a.collection for a in (*self.args, *self.kwargs.values()) if isinstance(a, SideInput))

    def with_side_inputs(self, replacements: Mapping[PCollection, PCollection]) -> Self:
        if not any(pc in replacements for pc in self.side_inputs()):
            return self

        def replaced(argument: Any) -> Any:
            if not isinstance(argument, SideInput):
                return argument
            return replace(argument, collection=replacements.get(argument.collection, argument.collection))

        other = copy.copy(self)
        other.args = tuple(map(replaced, self.args))
        other.kwargs = {name: replaced(argument) for name, argument in self.kwargs.items()}
        return other

    def functions(self) -> tuple[object, ...]:
        plain = [a for a in (*self.args, *self.kwargs.values()) if not isinstance(a, SideInput)]
        return (self.fn, *plain)


class Map(Elementwise):
    """Applies a function to each element: one output `fn(element)` each.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     lengths = p | hr.Create(["a", "bcd"]) | hr.Map(len) | hr.Collect()
    >>> sorted(lengths)
    [1, 3]
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return return_type(self.fn)


class MapTuple(Map):
    """Applies a function to the parts of each element, a tuple: one output `fn(*element)` each.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     lines = p | hr.Create([("a", 1)]) | hr.MapTuple(lambda word, n: f"{word}: {n}") | hr.Collect()
    >>> list(lines)
    ['a: 1']
    """


class KeyBy(Map):
    """Gives each element a key: pairs `(fn(element), element)`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     by_size = p | hr.Create(["a", "bcd"]) | hr.KeyBy(len) | hr.Collect()
    >>> sorted(by_size)
    [(1, 'a'), (3, 'bcd')]
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        key, value = return_type(self.fn), inputs[0].element_type
        return GenericAlias(tuple, (key or object, value or object))


class FlatMap(Elementwise):
    """Applies a function that returns an iterable to each element; each item of it is an output.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     words = p | hr.Create(["to be", "or not"]) | hr.FlatMap(str.split) | hr.Collect()
    >>> sorted(words)
    ['be', 'not', 'or', 'to']
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return item_type(return_type(self.fn))


class Filter(Elementwise):
    """Keeps the elements for which `fn(element)` is true.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     even = p | hr.Create([1, 2, 3, 4]) | hr.Filter(lambda x: x % 2 == 0) | hr.Collect()
    >>> sorted(even)
    [2, 4]
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return inputs[0].element_type


class ParDo(Elementwise):
    """Runs a DoFn on each element: any number of outputs, tagged ones too, side inputs, a life cycle, state, timers.

    >>> import headrace as hr
    >>> class Split(hr.DoFn):
    ...     def process(self, text):
    ...         if text.isdigit():
    ...             yield int(text)
    ...         else:
    ...             yield hr.TaggedOutput("bad", text)
    >>> with hr.Pipeline() as p:
    ...     parsed = p | hr.Create(["1", "x"]) | hr.ParDo(Split()).with_outputs("bad", main="good")
    ...     good, bad = parsed.good | hr.Collect(), parsed.bad | hr.Collect()
    >>> list(good), list(bad)
    ([1], ['x'])
    """

    fn: DoFn  # type: ignore[assignment]

    def __init__(self, fn: DoFn | Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if isinstance(fn, type) and issubclass(fn, DoFn):
            raise PipelineError(f"ParDo takes a DoFn object, got the class {fn.__name__}; write ParDo({fn.__name__}())")
        if isinstance(fn, DoFn):
            self.fn = fn
        elif callable(fn):
            self.fn = _FunctionDoFn(fn)
        else:
            raise PipelineError(f"ParDo takes a DoFn or a function, got {fn!r}")
        self.args = args
        self.kwargs = kwargs

    def default_label(self) -> str:
        named = self.fn.function if isinstance(self.fn, _FunctionDoFn) else type(self.fn)
        return f"ParDo({getattr(named, '__name__', 'λ')})"

    def with_outputs(self, *tags: str, main: str | None = None) -> Self:
        """Returns this ParDo with further outputs: applied, it gives collections by tag, `main` the untagged one."""
        if len({*tags, main}) != len(tags) + 1:
            raise PipelineError(f"ParDo: output tags must differ, got {[main, *tags]}")
        if self.handles_exceptions:
            raise PipelineError("ParDo: with_outputs(...) must come before with_exception_handling(); swap them")
        tagged = copy.copy(self)
        tagged.outputs = (main, *tags)
        return tagged

    def with_exception_handling(self) -> Self:
        if self.stateful:
            raise PipelineError(
                f"{self.default_label()}: with_exception_handling() is not for a DoFn with state or timers: its state "
                "would be left half changed; catch exceptions in its process, and yield a TaggedOutput"
            )
        if DEAD_LETTERS in self.outputs and not self.handles_exceptions:
            raise PipelineError(
                f"{self.default_label()}: an output is called {DEAD_LETTERS!r}, the tag that with_exception_handling() "
                "adds; choose another tag"
            )
        return super().with_exception_handling()

    @property
    def stateful(self) -> bool:
        return bool(self.fn.specs())

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return item_type(return_type(self.fn.process))


class _FunctionDoFn(DoFn):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.process = function  # type: ignore[method-assign]


class Partition(PTransform):
    """Splits a collection into `n`: `fn(element, n)` is the number of the element's part. Gives a tuple of collections.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     low, high = p | hr.Create([1, 5, 9]) | hr.Partition(lambda x, n: x * n // 10, 2)
    ...     small, large = low | hr.Collect(), high | hr.Collect()
    >>> sorted(small), sorted(large)
    ([1], [5, 9])
    """

    def __init__(self, fn: Callable[[Any, int], int], n: int) -> None:
        if n < 1:
            raise PipelineError(f"Partition: n must be at least 1, got n={n}; give the number of parts")
        self.fn, self.n = fn, n

    def expand(self, inputs: PCollection) -> tuple[PCollection, ...]:
        fn, n = self.fn, self.n

        def split(element: Any) -> Iterable[Any]:
            part = fn(element, n)
            if not 0 <= part < n:
                raise ValueError(f"Partition: the function must return a part from 0 to {n - 1}, got {part!r}")
            return (TaggedOutput(str(part), element),)

        parts: TaggedCollections = inputs | ParDo(split).with_outputs(*map(str, range(n)))
        return tuple(parts[str(i)] for i in range(n))


class WithTimestamps(Primitive):
    """Sets the event time of each element to `fn(element)`: seconds, a datetime or ISO 8601 text.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     timed = p | hr.Create([("a", 60), ("b", 70)]) | hr.WithTimestamps(lambda e: e[1]) | hr.Collect()
    >>> sorted(e.timestamp for e in timed.windowed)
    [60000000, 70000000]
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        if not callable(fn):
            raise PipelineError(f"WithTimestamps takes a function from element to time, got {fn!r}")
        self.fn = fn

    def functions(self) -> tuple[object, ...]:
        return (self.fn,)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return inputs[0].element_type
