"""Combines pairs by key and exchanges them between tasks as blocks: one pickle of a dict for each receiving partition.

Spark's own RDDs of pairs do the same element by element. Partitions are those of Spark's default partitioner, so that
an RDD made here can be joined with others without another exchange.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any, Final, NamedTuple

from pyspark.core.rdd import RDD, Partitioner, portable_hash
from pyspark.shuffle import Aggregator, ExternalMerger

from headrace.model.pickling import dumps

Merge = Callable[[Any, Any], Any]

_HASHED: Final = frozenset({str, int, float, bytes, bool})
"""Types whose hash is the same in all workers, as it stands."""
_MOST_KEYS: Final = 500_000
"""Keys of a task at which it sends on what it has combined."""
_LARGE: Final = 64 << 20
"""Bytes of blocks beyond which a task merges with Spark's merger, which writes to disk what has no room in memory."""

_SUM: Final = (lambda a, b: a + b).__code__


class Combiner(NamedTuple):
    """Makes one of the values of a key: by `create` from the first, `add` for each other, `merge` between tasks."""

    create: Callable[[Any], Any] | None  # None: a value is a combiner
    add: Merge
    merge: Merge


class Block(NamedTuple):
    """The pairs that a task has for one partition, and the tag of its RDD."""

    tag: int
    task: int
    pairs: dict[Any, Any]


def is_addition(function: object) -> bool:
    """Returns whether a function only adds its two arguments, in this order.

    >>> is_addition(operator.add), is_addition(lambda x, y: x + y), is_addition(lambda x, y: y + x)
    (True, True, False)
    """
    if function is operator.add:
        return True
    if not isinstance(function, FunctionType):
        return False
    code = function.__code__
    return code.co_code == _SUM.co_code and code.co_argcount == 2 and code.co_flags == _SUM.co_flags


def combine(pairs: Iterable[Any], combiner: Combiner) -> Iterator[dict[Any, Any]]:
    """Combines pairs by key; yields dicts, more than one only if there are very many keys.

    >>> list(combine([("a", 1), ("b", 2), ("a", 3)], Combiner(None, max, max)))
    [{'a': 3, 'b': 2}]
    """
    combined: dict[Any, Any] = {}
    create, add = combiner.create, combiner.add
    adds = is_addition(add)
    for key, value in pairs:
        if key in combined:
            combined[key] = combined[key] + value if adds else add(combined[key], value)  # a call less for each pair
        else:
            combined[key] = value if create is None else create(value)
            if len(combined) >= _MOST_KEYS:
                yield combined
                combined = {}
    if combined:
        yield combined


def gather(pairs: Iterable[Any]) -> Iterator[dict[Any, list[Any]]]:
    """Gathers the values of each key in a list, in their order.

    >>> list(gather([("a", 1), ("b", 2), ("a", 3)]))
    [{'a': [1, 3], 'b': [2]}]
    """
    gathered: dict[Any, list[Any]] = {}
    count = 0
    for key, value in pairs:
        if key in gathered:
            gathered[key].append(value)
        else:
            gathered[key] = [value]
        count += 1
        if count >= _MOST_KEYS:
            yield gathered
            gathered, count = {}, 0
    if gathered:
        yield gathered


def split(pairs: dict[Any, Any], partitions: int) -> list[dict[Any, Any]]:
    """Splits pairs by the partitions that Spark's default partitioner gives their keys.

    >>> split({1: "a", 2: "b", 3: "c"}, 2)
    [{2: 'b'}, {1: 'a', 3: 'c'}]
    """
    if partitions == 1:
        return [pairs]
    parts: list[dict[Any, Any]] = [{} for _ in range(partitions)]
    for key, value in pairs.items():
        hashed = hash(key) if type(key) in _HASHED else portable_hash(key)
        parts[hashed % partitions][key] = value
    return parts


def blocked(
    rdd: RDD[Any], partitions: int, prepare: Callable[[Iterable[Any]], Iterator[dict[Any, Any]]], tag: int = 0
) -> RDD[Any]:
    """Returns an RDD of encoded blocks, each with the number of the partition whose keys it has."""

    def blocks(task: int, pairs: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
        for prepared in prepare(pairs):
            for number, part in enumerate(split(prepared, partitions)):
                if part:
                    yield number, dumps((tag, task, part))

    return rdd.mapPartitionsWithIndex(blocks)


def exchanged(blocks: RDD[Any], partitions: int) -> RDD[Any]:
    """Returns an RDD with each block in the partition whose keys it has."""
    return blocks.partitionBy(partitions, _same_number)


def _same_number(number: int) -> int:
    return number


def decoded(pairs: Iterable[tuple[int, bytes]]) -> list[Block]:
    """Decodes blocks; their order does not depend on which task was done first."""
    blocks = [Block(*pickle.loads(data)) for _, data in pairs]
    blocks.sort(key=lambda block: block[:2])
    return blocks


def merge_blocks(blocks: Iterable[dict[Any, Any]], merge: Merge) -> dict[Any, Any]:
    """Merges dicts of combiners.

    >>> merge_blocks([{"a": 1}, {"a": 2, "b": 3}], operator.add)
    {'a': 3, 'b': 3}
    """
    iterator = iter(blocks)
    merged = dict(next(iterator, {}))
    add = is_addition(merge)
    for block in iterator:
        for key, value in block.items():
            if key in merged:
                merged[key] = merged[key] + value if add else merge(merged[key], value)
            else:
                merged[key] = value
    return merged


def merge_encoded(encoded: Iterable[tuple[int, bytes]], merge: Merge, large: int = _LARGE) -> Iterable[tuple[Any, Any]]:
    """Merges encoded blocks; more than `large` bytes of them with Spark's merger."""
    data = [each for _, each in encoded]
    if sum(map(len, data)) <= large:
        return merge_blocks((block.pairs for block in decoded((0, each) for each in data)), merge).items()
    merger: Any = ExternalMerger(Aggregator(lambda value: value, merge, merge))
    for each in data:
        merger.mergeCombiners(Block(*pickle.loads(each)).pairs.items())
    return merger.items()  # type: ignore[no-any-return]


def combined_by_key(rdd: RDD[Any], combiner: Combiner, partitions: int) -> RDD[Any]:
    """Returns an RDD of the combined pairs, partitioned as Spark's combineByKey does it."""

    def prepare(pairs: Iterable[Any]) -> Iterator[dict[Any, Any]]:
        return combine(pairs, combiner)

    def merged(encoded: Iterable[tuple[int, bytes]]) -> Iterable[tuple[Any, Any]]:
        return merge_encoded(encoded, combiner.merge)

    result = exchanged(blocked(rdd, partitions, prepare), partitions).mapPartitions(merged, True)
    result.partitioner = Partitioner(partitions, portable_hash)
    return result
