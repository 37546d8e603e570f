"""Ready-made aggregations of elements: each is CombineGlobally or CombinePerKey with one CombineFn."""

from __future__ import annotations

from collections.abc import Callable
from types import GenericAlias
from typing import Any

from headrace.model.algebra import (
    CollectFn,
    CombineFn,
    CountFn,
    MaxFn,
    MeanFn,
    MinFn,
    SampleFn,
    SumFn,
    TopFn,
)
from headrace.model.elementwise import Map
from headrace.model.keyed import CombineGlobally, CombinePerKey, Keys
from headrace.model.lateoutput import LATE, MAIN, LateOutput
from headrace.model.pipeline import PCollection, PTransform, TaggedCollections
from headrace.model.sketches import ApproxDistinctFn, HeavyHittersFn, QuantilesFn


class _Aggregation:
    """Base of the aggregations: `X.globally(...)` and `X.per_key(...)`, with the CombineFn `fn(...)`."""

    fn: Callable[..., CombineFn[Any, Any, Any]]

    @classmethod
    def globally(cls, *args: Any, **kwargs: Any) -> CombineGlobally:
        """Returns the transform that aggregates the whole collection, per window."""
        return CombineGlobally(cls.fn(*args, **kwargs))

    @classmethod
    def per_key(cls, *args: Any, **kwargs: Any) -> CombinePerKey:
        """Returns the transform that aggregates the values of each key, per window, in a collection of pairs."""
        return CombinePerKey(cls.fn(*args, **kwargs))


class Count(_Aggregation):
    """Counts elements: `Count.globally()`, `Count.per_key()`, `Count.per_element()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     counts = p | hr.Create(["a", "b", "a"]) | hr.Count.per_element() | hr.Collect()
    >>> sorted(counts)
    [('a', 2), ('b', 1)]
    """

    fn = CountFn

    @staticmethod
    def per_element() -> _PerElement:
        """Returns the transform that gives pairs (element, how often it occurs), per window."""
        return _PerElement()


class _PerElement(LateOutput, PTransform):
    def default_label(self) -> str:
        return "Count.per_element"

    def expand(self, inputs: PCollection) -> Any:
        pairs, count = inputs | "pair" >> _pair_with_none(inputs), "count" >> CombinePerKey(CountFn())
        if not self.has_late_output:
            return pairs | count
        counts = pairs | count.with_late_output()
        return TaggedCollections({MAIN: counts[MAIN], LATE: counts[LATE] | "unpair late" >> Keys()})


def _pair_with_none(inputs: PCollection) -> Map:
    """Returns the transform from elements to pairs (element, None)."""
    return Map(_with_none).with_output_types(GenericAlias(tuple, (inputs.element_type or object, object)))


def _with_none(element: Any) -> tuple[Any, None]:
    return element, None


class Sum(_Aggregation):
    """Adds elements up: `Sum.globally()`, `Sum.per_key()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     total = p | hr.Create([1, 2]) | hr.Sum.globally() | hr.Collect()
    >>> list(total)
    [3]
    """

    fn = SumFn


class Mean(_Aggregation):
    """Computes means: `Mean.globally()`, `Mean.per_key()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     mean = p | hr.Create([1, 2]) | hr.Mean.globally() | hr.Collect()
    >>> list(mean)
    [1.5]
    """

    fn = MeanFn


class Min(_Aggregation):
    """Finds the smallest elements: `Min.globally()`, `Min.per_key()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     least = p | hr.Create([("a", 2), ("a", 1)]) | hr.Min.per_key() | hr.Collect()
    >>> list(least)
    [('a', 1)]
    """

    fn = MinFn


class Max(_Aggregation):
    """Finds the largest elements: `Max.globally()`, `Max.per_key()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     most = p | hr.Create([("a", 2), ("a", 1)]) | hr.Max.per_key() | hr.Collect()
    >>> list(most)
    [('a', 2)]
    """

    fn = MaxFn


class Top:
    """Finds the n largest or smallest elements, in order: `Top.largest(n)`, `Top.smallest(n)`, and each `_per_key`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     best = p | hr.Create([("a", 2), ("a", 9), ("a", 4)]) | hr.Top.largest_per_key(2) | hr.Collect()
    >>> list(best)
    [('a', [9, 4])]
    """

    @staticmethod
    def largest(n: int, key: Callable[[Any], Any] | None = None) -> CombineGlobally:
        """Returns the transform to a list of the n largest elements, the largest first, per window."""
        return CombineGlobally(TopFn(n, key))

    @staticmethod
    def smallest(n: int, key: Callable[[Any], Any] | None = None) -> CombineGlobally:
        """Returns the transform to a list of the n smallest elements, the smallest first, per window."""
        return CombineGlobally(TopFn(n, key, reverse=True))

    @staticmethod
    def largest_per_key(n: int, key: Callable[[Any], Any] | None = None) -> CombinePerKey:
        """Returns the transform to a list of the n largest values of each key, the largest first, per window."""
        return CombinePerKey(TopFn(n, key))

    @staticmethod
    def smallest_per_key(n: int, key: Callable[[Any], Any] | None = None) -> CombinePerKey:
        """Returns the transform to a list of the n smallest values of each key, the smallest first, per window."""
        return CombinePerKey(TopFn(n, key, reverse=True))


class Sample(_Aggregation):
    """Draws a uniform sample of at most n elements, without replacement: `Sample.globally(n)`, `Sample.per_key(n)`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     some = p | hr.Create(range(100)) | hr.Sample.globally(3) | hr.Collect()
    >>> len(list(some)[0])
    3
    """

    fn = SampleFn


class ToList(_Aggregation):
    """Collects all elements in one list: `ToList.globally()`, `ToList.per_key()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     all_of_them = p | hr.Create([2, 1]) | hr.ToList.globally() | hr.Collect()
    >>> sorted(list(all_of_them)[0])
    [1, 2]
    """

    fn = CollectFn


class Quantiles(_Aggregation):
    """Estimates n quantiles, from minimum to maximum: `Quantiles.globally(n)`, `Quantiles.per_key(n)`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     points = p | hr.Create(range(101)) | hr.Quantiles.globally(5) | hr.Collect()
    >>> list(points)
    [[0.0, 25.0, 50.0, 75.0, 100.0]]
    """

    fn = QuantilesFn


class ApproxUnique(_Aggregation):
    """Estimates the number of different elements, in a few kilobytes: `ApproxUnique.globally()`, `.per_key()`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     users = p | hr.Create(["a", "b", "a"]) | hr.ApproxUnique.globally() | hr.Collect()
    >>> list(users)
    [2]
    """

    fn = ApproxDistinctFn


class HeavyHitters(_Aggregation):
    """Estimates the k most frequent elements and their counts: `HeavyHitters.globally(k)`, `HeavyHitters.per_key(k)`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     common = p | hr.Create(["a", "b", "a"]) | hr.HeavyHitters.globally(1) | hr.Collect()
    >>> list(common)
    [[('a', 2)]]
    """

    fn = HeavyHittersFn


class Distinct(PTransform):
    """Removes duplicates: gives each different element once, per window.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     once = p | hr.Create([1, 2, 1]) | hr.Distinct() | hr.Collect()
    >>> sorted(once)
    [1, 2]
    """

    def expand(self, inputs: PCollection) -> Any:
        return inputs | "pair" >> _pair_with_none(inputs) | "count" >> CombinePerKey(CountFn()) | "unpair" >> Keys()
