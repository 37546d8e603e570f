"""Finds the shards where elements are at home, and the collections that have to be sent there.

An element is at home in the shard of its key: the first of a pair, or else the element itself. Operators that bring
equal keys or elements together need what they read at home, and some leave it there; between others nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headrace.engine.shard.slots import shards_of
from headrace.model.errors import PipelineError
from headrace.model.incremental import changingcollections as declared
from headrace.model.incremental.changingcollections import Collection
from headrace.model.keys import encode_keys

_BY_KEY: Final = frozenset([declared.JOIN, declared.REDUCE])
_MEET: Final = frozenset([*_BY_KEY, declared.DISTINCT, declared.VARIABLE, declared.HOME])
_LEFT_THERE: Final = frozenset([declared.FILTER, declared.NEGATE, declared.CONCAT, declared.LEAVE])


def is_at_home(collection: Collection) -> bool:
    """Says whether every element of a collection is in the shard where it is at home.

    >>> edges = Collection.input("edges")
    >>> is_at_home(edges.count().filter(bool)), is_at_home(edges.map(str)), is_at_home(edges.join(edges))
    (True, False, True)
    """
    if collection.kind in _LEFT_THERE:
        return all(map(is_at_home, collection.inputs))
    if collection.kind == declared.JOIN:
        return collection.fn is None
    return collection.kind == declared.INPUT or collection.kind in _MEET


def brought_home(result: Collection) -> Collection:
    """Returns a collection of the same elements that are at home."""
    return result if is_at_home(result) else Collection(declared.HOME, (result,))


def is_sent(collection: Collection, reader: Collection) -> bool:
    """Says whether what a reader gets of a collection has to be sent to where it is at home."""
    return reader.kind in _MEET and not is_at_home(collection)


def by_shard(changes: Iterable[tuple[Any, ...]], shards: int) -> dict[int, list[Any]]:
    """Divides changes by the shards in which their elements are at home.

    >>> divided = by_shard([(("a", 1), 1), (("a", 2), -1)], 4)
    >>> list(divided.values())
    [[(('a', 1), 1), (('a', 2), -1)]]
    """
    listed = list(changes)
    if not listed or shards == 1:
        return {0: listed} if listed else {}
    elements = [change[0] for change in listed]
    keys = [each[0] if isinstance(each, tuple) and len(each) == 2 else each for each in elements]
    try:
        encoded, _ = encode_keys(keys)
    except TypeError as error:
        raise PipelineError(f"with several shards, elements go to one by their keys: {error}") from None
    found: dict[int, list[Any]] = {}
    for change, shard in zip(listed, shards_of(encoded, shards).tolist(), strict=True):
        found.setdefault(shard, []).append(change)
    return found


def check_pairs(collection: Collection, changes: Iterable[tuple[Any, int]]) -> None:
    """Refuses what is no pair where elements have to be at home by their keys."""
    if collection.kind in _BY_KEY:
        for element, _ in changes:
            if not isinstance(element, tuple) or len(element) != 2:
                raise PipelineError(
                    f"join, reduce and count take tuples of key and value where a program has several shards, got "
                    f"{element!r}; make a tuple of it"
                )
