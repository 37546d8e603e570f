"""Tuples: named values, with the component, stream and task that emitted them.

Tuples that arrived together share an `Origin`. A tuple itself holds its values and a row number, so that ids and roots
stay in arrays until somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

SYSTEM: Final = "__system"
"""The component that tick tuples come from."""
TICK: Final = "__tick"
"""The stream that tick tuples come on."""

Ids: TypeAlias = npt.NDArray[np.uint64]
"""The 64-bit ids of tuples or of trees."""


class Origin:
    """The source that tuples have in common: component, stream, task and fields, and their ids from row `first` on.

    `more` has the further roots of tuples that belong to several trees, by row.
    """

    __slots__ = ("fields", "first", "ids", "index", "more", "roots", "source", "stream", "task")

    def __init__(
        self,
        source: str,
        stream: str,
        task: int,
        fields: tuple[str, ...],
        *,
        first: int = -1,
        ids: Ids | None = None,
        roots: Ids | None = None,
        more: dict[int, tuple[int, ...]] | None = None,
    ) -> None:
        self.source, self.stream, self.task, self.fields = source, stream, task, fields
        self.first = first
        self.ids, self.roots, self.more = ids, roots, more or {}
        width = len(fields)
        self.index: dict[str | int, int] = {
            **{name: place for place, name in enumerate(fields)},
            **{place: place % width for place in range(-width, width)},
        }


class Tuple:
    """Values by name or place, with their origin: `source` component, `stream` and `task`.

    >>> tup = Tuple.of({"user": "ann", "clicks": 3}, source="clicks")
    >>> tup["user"], tup[1], tup.values, tup.fields, tup.source, tup.stream
    ('ann', 3, ('ann', 3), ('user', 'clicks'), 'clicks', 'default')
    >>> tup["name"]
    Traceback (most recent call last):
        ...
    KeyError: "the tuple from 'clicks' has no field 'name'; it has user, clicks"
    """

    __slots__ = ("origin", "row", "values")

    # No __init__: it would take as long as everything else that is done to make a tuple.
    values: tuple[Any, ...]
    """The values, in the order of the fields."""
    origin: Origin
    row: int

    @classmethod
    def of(cls, values: dict[str, Any], *, source: str = "test", stream: str = "default", task: int = 0) -> Tuple:
        """Makes a tuple that belongs to no tree, for tests of a bolt."""
        return make_tuple(tuple(values.values()), Origin(source, stream, task, tuple(values)), -1)

    def __getitem__(self, field: str | int) -> Any:
        try:
            return self.values[self.origin.index[field]]
        except KeyError:
            raise KeyError(
                f"the tuple from {self.source!r} has no field {field!r}; it has {', '.join(self.fields) or 'none'}"
            ) from None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __contains__(self, field: object) -> bool:
        return field in self.origin.fields

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the values."""
        return self.origin.fields

    @property
    def source(self) -> str:
        """The component that emitted it."""
        return self.origin.source

    @property
    def stream(self) -> str:
        """The stream it was emitted to."""
        return self.origin.stream

    @property
    def task(self) -> int:
        """The task that emitted it."""
        return self.origin.task

    @property
    def is_tick(self) -> bool:
        """Whether it is a tick tuple, which only says that time has passed."""
        return self.origin.stream == TICK and self.origin.source == SYSTEM

    @property
    def id(self) -> int:
        """Its id; 0 if it is not tracked."""
        ids = self.origin.ids
        return 0 if ids is None else int(ids[self.row - self.origin.first])

    @property
    def roots(self) -> tuple[int, ...]:
        """The trees it belongs to."""
        roots = self.origin.roots
        root = 0 if roots is None else int(roots[self.row - self.origin.first])
        return (root, *self.origin.more.get(self.row, ())) if root else ()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self.fields, self.values, strict=True))
        return f"Tuple({values}, source={self.source!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A tuple that a bolt stores is part of the bolt's state: alone, without the batch it arrived in.
        origin = self.origin
        values = (self.values, origin.source, origin.stream, origin.task, origin.fields, self.id, self.roots)
        return restore_tuple, values


def make_tuple(values: tuple[Any, ...], origin: Origin, row: int) -> Tuple:
    """Makes a tuple of a row of its origin.

    >>> make_tuple((1,), Origin("numbers", "default", 0, ("n",)), -1)
    Tuple(n=1, source='numbers')
    """
    tup = Tuple()
    tup.values, tup.origin, tup.row = values, origin, row
    return tup


def restore_tuple(
    values: tuple[Any, ...],
    source: str,
    stream: str,
    task: int,
    fields: tuple[str, ...],
    number: int,
    roots: tuple[int, ...],
) -> Tuple:
    """Makes a tuple from its pickle, with its id and its roots."""
    origin = Origin(
        source,
        stream,
        task,
        fields,
        ids=np.array([number], np.uint64),
        roots=np.array(roots[:1] or [0], np.uint64),
        more={-1: roots[1:]},
    )
    return make_tuple(values, origin, -1)


_held = restore_tuple  # its name in pickles of an earlier version
