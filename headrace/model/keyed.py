"""Transforms that bring elements together: windowing, grouping and combining by key, flattening, joining."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any

from headrace.model.algebra import CombineFn, combine_fn
from headrace.model.elementwise import AsList, FlatMap, Map
from headrace.model.errors import PipelineError
from headrace.model.lateoutput import LATE, MAIN, LateOutput
from headrace.model.panes import Accumulation, Closing, TimestampCombiner, Windowing
from headrace.model.pipeline import PCollection, Primitive, PTransform, TaggedCollections, pipeline_of
from headrace.model.schema import pair_types
from headrace.model.triggers import DefaultTrigger, Trigger
from headrace.model.windows import WindowFn


class WindowInto(Primitive):
    """Assigns elements to windows by their timestamps, and declares when panes fire and how they accumulate.

    - trigger: when a window emits a pane; by default when the watermark passes its end, and for late data
    - accumulation: a pane has what is new ("discarding"), all so far ("accumulating"), or all so far after a
      retraction of the pane before ("retracting")
    - allowed_lateness: how long after its end, by the watermark, a window still accepts late data
    - timestamp_combiner: the timestamp of a result: "end_of_window", or that of its "earliest" or "latest" element
    - closing: whether an expiring window emits its last pane "always", or only if it is "non_empty"

    >>> import headrace as hr
    >>> visits = [hr.TimestampedValue("a", 10), hr.TimestampedValue("b", 70)]
    >>> with hr.Pipeline() as p:
    ...     per_minute = p | hr.Create(visits) | hr.WindowInto(hr.FixedWindows("1 minute"))
    ...     counts = per_minute | hr.Count.globally() | hr.Collect()
    >>> sorted((e.window.start // 1_000_000, e.value) for e in counts.windowed)
    [(0, 1), (60, 1)]
    """

    def __init__(
        self,
        window: WindowFn,
        *,
        trigger: Trigger | None = None,
        accumulation: Accumulation = "discarding",
        allowed_lateness: Any = 0,
        timestamp_combiner: TimestampCombiner = "end_of_window",
        closing: Closing = "non_empty",
    ) -> None:
        if not isinstance(window, WindowFn):
            raise PipelineError(
                f"WindowInto takes a WindowFn, got {window!r}; e.g. WindowInto(FixedWindows('1 minute'))"
            )
        self.windowing = Windowing(
            window=window,
            trigger=DefaultTrigger() if trigger is None else trigger,
            accumulation=accumulation,
            allowed_lateness=allowed_lateness,
            timestamp_combiner=timestamp_combiner,
            closing=closing,
        )

    def default_label(self) -> str:
        return f"WindowInto({self.windowing.window})"

    def functions(self) -> tuple[object, ...]:
        return (self.windowing.window,)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return inputs[0].element_type

    def windowing_from(self, inputs: tuple[PCollection, ...]) -> Windowing:
        return self.windowing


class GroupByKey(LateOutput, Primitive):
    """Groups pairs (key, value) by key: gives one (key, values) per key and window.

    `values` is a read-only sequence. It may be larger than memory: you can iterate over it any number of times.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     groups = p | hr.Create([("a", 1), ("b", 2), ("a", 3)]) | hr.GroupByKey() | hr.Collect()
    >>> sorted((key, sorted(values)) for key, values in groups)
    [('a', [1, 3]), ('b', [2])]
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        pair = pair_types(inputs[0].element_type)
        return GenericAlias(tuple, (pair[0] if pair else object, Sequence[object]))


class CombinePerKey(LateOutput, Primitive):
    """Aggregates pairs (key, value) by key: gives one (key, aggregate) per key and window.

    `fn` is a CombineFn or a plain callable such as `sum`, `max` or `lambda a, b: a + b`. Values are combined before the
    shuffle already.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     totals = p | hr.Create([("a", 1), ("b", 2), ("a", 3)]) | hr.CombinePerKey(sum) | hr.Collect()
    >>> sorted(totals)
    [('a', 4), ('b', 2)]
    """

    def __init__(self, fn: CombineFn[Any, Any, Any] | type | Callable[..., Any]) -> None:
        self.fn = combine_fn(fn)

    def default_label(self) -> str:
        return f"CombinePerKey({self.fn})"

    def functions(self) -> tuple[object, ...]:
        return (self.fn,)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        pair = pair_types(inputs[0].element_type)
        return GenericAlias(tuple, (pair[0] if pair else object, object))


class CombineGlobally(LateOutput, PTransform):
    """Aggregates the whole collection: gives one aggregate per window.

    In the global window an empty collection gives the aggregate of no elements, for instance 0 for `sum`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     largest = p | hr.Create([3, 1, 2]) | hr.CombineGlobally(max) | hr.Collect()
    >>> list(largest)
    [3]
    """

    def __init__(self, fn: CombineFn[Any, Any, Any] | type | Callable[..., Any]) -> None:
        self.fn = combine_fn(fn)

    def default_label(self) -> str:
        return f"CombineGlobally({self.fn})"

    def expand(self, inputs: PCollection) -> Any:
        pairs, combine = inputs | "pair" >> Map(_with_no_key), "combine" >> CombinePerKey(self.fn)
        if not self.has_late_output:
            return self._or_zero(inputs, pairs | combine | "unpair" >> Values())
        outputs = pairs | combine.with_late_output()
        late = outputs[LATE] | "unpair late" >> Values()
        return TaggedCollections({MAIN: self._or_zero(inputs, outputs[MAIN] | "unpair" >> Values()), LATE: late})

    def _or_zero(self, inputs: PCollection, combined: PCollection) -> PCollection:
        fn = self.fn
        if not (inputs.bounded and inputs.windowing.is_global):
            return combined
        from headrace.model.sources import Create

        def result_or_zero(_: None, results: list[Any]) -> list[Any]:
            return results or [fn.finish(fn.zero())]

        start = inputs.pipeline | "once" >> Create([None])
        return start | "or zero" >> FlatMap(result_or_zero, AsList(combined))  # type: ignore[no-any-return]


def _with_no_key(element: Any) -> tuple[None, Any]:
    return None, element


class Keys(PTransform):
    """Extracts the keys of pairs.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     keys = p | hr.Create([("a", 1)]) | hr.Keys() | hr.Collect()
    >>> list(keys)
    ['a']
    """

    def expand(self, inputs: PCollection) -> Any:
        pair = pair_types(inputs.element_type)
        return inputs | Map(_first).with_output_types(pair[0] if pair else None)


class Values(PTransform):
    """Extracts the values of pairs.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     values = p | hr.Create([("a", 1)]) | hr.Values() | hr.Collect()
    >>> list(values)
    [1]
    """

    def expand(self, inputs: PCollection) -> Any:
        pair = pair_types(inputs.element_type)
        return inputs | Map(_second).with_output_types(pair[1] if pair else None)


def _first(pair: Any) -> Any:
    return pair[0]


def _second(pair: Any) -> Any:
    return pair[1]


class Flatten(Primitive):
    """Merges several collections into one: `(a, b) | Flatten()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     a, b = p | "a" >> hr.Create([1]), p | "b" >> hr.Create([2])
    ...     both = (a, b) | hr.Flatten() | hr.Collect()
    >>> sorted(both)
    [1, 2]
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        first = inputs[0].element_type if inputs else None
        return first if all(pc.element_type == first for pc in inputs) else None


class Reshuffle(Primitive):
    """Redistributes elements evenly over the workers; the steps before it and after it are not fused.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     same = p | hr.Create([1, 2]) | hr.Reshuffle() | hr.Collect()
    >>> sorted(same)
    [1, 2]
    """

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return inputs[0].element_type


class CoGroupByKey(PTransform):
    """Joins a dict of collections of pairs by key: gives one (key, {name: values}) per key and window.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     emails = p | "emails" >> hr.Create([("amy", "amy@x")])
    ...     phones = p | "phones" >> hr.Create([("amy", "555"), ("bob", "777")])
    ...     people = {"emails": emails, "phones": phones} | hr.CoGroupByKey() | hr.Collect()
    >>> sorted((name, {k: list(v) for k, v in contacts.items()}) for name, contacts in people)
    [('amy', {'emails': ['amy@x'], 'phones': ['555']}), ('bob', {'emails': [], 'phones': ['777']})]
    """

    def expand(self, inputs: Mapping[str, PCollection] | Sequence[PCollection]) -> Any:
        pipeline_of(inputs, self)
        if not isinstance(inputs, Mapping):
            inputs = dict(enumerate(inputs))  # type: ignore[arg-type]
        names = tuple(inputs)
        tagged = tuple(pc | f"tag {name}" >> Tag(number) for number, (name, pc) in enumerate(inputs.items()))

        def by_name(group: tuple[Any, Sequence[tuple[int, Any]]]) -> tuple[Any, dict[Any, Any]]:
            key, pairs = group
            return key, {name: TaggedValues(pairs, number) for number, name in enumerate(names)}

        return tagged | Flatten() | GroupByKey() | "by name" >> Map(by_name)


class Tag(Map):
    """Marks the values of pairs with the number of their collection in a join."""

    def __init__(self, number: int) -> None:
        super().__init__(self.tagged)
        self.number = number

    def tagged(self, pair: Any) -> tuple[Any, tuple[int, Any]]:
        key, value = pair
        return key, (self.number, value)

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return None


class TaggedValues(Sequence[Any]):
    """The values of a group that came from one of the joined collections; lazy, so a group may exceed memory."""

    def __init__(self, pairs: Sequence[tuple[int, Any]], number: int) -> None:
        self._pairs, self._number = pairs, number

    def __iter__(self) -> Iterator[Any]:
        return (value for number, value in self._pairs if number == self._number)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> Any:
        return list, (list(self),)
