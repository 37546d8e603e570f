"""Calls a function for each row of columns with one and the same object, whose attributes are set anew for each call.

That is for functions of which `usedcolumns` knows that they read attributes of their argument and do nothing else with
it, and that are done with it before the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from typing import Any

_GOES_ON = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def can_share(fn: Callable[..., Any], names: Iterable[str], *, in_turn: bool = False) -> bool:
    """Tells whether calls of a function that reads these attributes can share a row.

    They can if it is no generator, or if each result is used up before the next call (`in_turn`).

    >>> def prices(bid):
    ...     yield bid.price
    >>> can_share(lambda bid: bid.price, ["price"]), can_share(prices, ["price"])
    (True, False)
    """
    code = getattr(fn, "__code__", None)  # which a method passes on, too
    plain = not any(name.startswith("__") for name in names)
    return code is not None and (in_turn or not code.co_flags & _GOES_ON) and plain


def results_of(fn: Callable[..., Any], names: tuple[str, ...], rows: Iterable[Any]) -> Iterator[Any]:
    """Yields what a function returns for each row: a tuple of the values of these attributes, or of one, that value.

    >>> list(results_of(lambda bid: bid.price * 2, ("price",), [1, 2]))
    [2, 4]
    """
    return _loop(len(names))(fn, _row_class(names)(), rows)


@lru_cache(maxsize=1024)
def _row_class(names: tuple[str, ...]) -> type:
    """Returns a class of rows in which a slot by position is the attribute of each name."""
    slots: Any = type("Slots", (), {"__slots__": _slots(len(names))})
    attributes = {name: vars(slots)[slot] for name, slot in zip(names, _slots(len(names)), strict=True)}
    return type("Row", (slots,), {**attributes, "__slots__": ()})


@lru_cache
def _loop(width: int) -> Callable[[Callable[..., Any], object, Iterable[Any]], Iterator[Any]]:
    """Returns the loop for rows of so many attributes; written out, it is the quickest way to set them."""
    attributes = ", ".join(f"row.{slot}" for slot in _slots(width))
    text = f"lambda fn, row, rows: (fn(row) for {attributes} in rows)"
    loop: Callable[..., Iterator[Any]] = eval(compile(text, __file__, "eval"))  # of this file, for tracebacks
    return loop


def _slots(width: int) -> list[str]:
    return [f"__part{position}__" for position in range(width)]
