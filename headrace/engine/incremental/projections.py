"""Reads from a function's bytecode whether it only puts parts of its arguments together, such as `(edge[1], edge[0])`.

What such a function makes of many elements is made of their columns, without a call for each.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.model.incremental.changingcollections import Collection

_PASSED = frozenset(["RESUME", "NOP", "CACHE", "PRECALL"])


class Part(NamedTuple):
    """An argument, by its number, or one of the two parts of it."""

    argument: int
    part: int | None = None


class Constant(NamedTuple):
    """A constant."""

    value: Any


def projection(fn: Callable[..., Any] | None, arguments: int) -> tuple[Part | Constant, Part | Constant] | None:
    """Returns what the pair is made of that a function returns; None if it does, or may do, anything else.

    >>> projection(lambda edge: (edge[1], edge[0]), 1)
    (Part(argument=0, part=1), Part(argument=0, part=0))
    >>> projection(lambda key, left, right: (right, None), 3)
    (Part(argument=2, part=None), Constant(value=None))
    >>> projection(lambda edge: (edge[0], edge[1] + 1), 1)
    """
    if not isinstance(fn, types.FunctionType):
        return None
    code = fn.__code__
    varies = code.co_flags & (0x04 | 0x08 | 0x20)  # further arguments, or a generator
    if code.co_argcount != arguments or code.co_kwonlyargcount or varies:
        return None
    stack: list[Any] = []
    for each in dis.get_instructions(code):
        if each.opname in _PASSED:
            continue
        if each.opname == "LOAD_FAST" and each.arg is not None and each.arg < arguments:
            stack.append(Part(each.arg))
        elif each.opname == "LOAD_CONST":
            stack.append(Constant(each.argval))
        elif each.opname == "BINARY_SUBSCR" and len(stack) > 1:
            index, whole = stack.pop(), stack.pop()
            if not (isinstance(whole, Part) and whole.part is None and isinstance(index, Constant)):
                return None
            if type(index.value) is not int or index.value not in (0, 1, -1, -2):
                return None
            stack.append(Part(whole.argument, index.value % 2))
        elif each.opname == "BUILD_TUPLE" and each.arg == 2 and len(stack) == 2:
            stack = [tuple(stack)]
        elif each.opname == "RETURN_VALUE" and len(stack) == 1:
            return stack[0] if type(stack[0]) is tuple else None
        else:
            return None
    return None


def projection_of(collection: Collection) -> tuple[Part | Constant, Part | Constant] | None:
    """Returns the projection of a `map` or `join`, if its function is one and makes pairs of single parts."""
    if collection.kind == "join":
        made = projection(collection.fn, 3)
        return made if made is None or all(isinstance(e, Constant) or e.part is None for e in made) else None
    made = projection(collection.fn, 1)
    return made if made is None or all(isinstance(e, Constant) or e.part is not None for e in made) else None
