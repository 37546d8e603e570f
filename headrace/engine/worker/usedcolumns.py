"""Finds which columns of its element a function uses, so that no others are decoded, or even read."""

from __future__ import annotations

import dis
import inspect
from collections import namedtuple
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, Final

from headrace.model.schema import Schema

_LOOKS_AT_VARIABLES: Final = {"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "breakpoint"}
_TUPLE_GETTER: Final = type(namedtuple("pair", "x y").x)  # type: ignore[attr-defined]


def used_columns(fn: Callable[..., Any]) -> frozenset[str] | None:
    """Returns the attributes that a function reads of its first argument; None if it may do anything else with it.

    That is known of a function or method written in Python in which an attribute follows wherever the argument is
    mentioned.

    >>> used_columns(lambda bid: bid.price * 2), used_columns(lambda bid: len(bid)), used_columns(str.upper)
    (frozenset({'price'}), None, None)
    """
    bound = isinstance(fn, MethodType)
    function = fn.__func__ if isinstance(fn, MethodType) else fn
    if not isinstance(function, FunctionType) or function.__code__.co_argcount <= bound:
        return None
    code = function.__code__
    argument = code.co_varnames[int(bound)]
    if argument in code.co_cellvars or not _LOOKS_AT_VARIABLES.isdisjoint(code.co_names):
        return None
    used = set()
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
        if instruction.opcode not in dis.haslocal:
            continue
        variables = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if argument not in variables:
            continue
        *others, last = variables  # the one on top of the stack
        loaded = instruction.opname.startswith("LOAD_FAST") and last == argument and argument not in others
        if not loaded or following is None or following.opname != "LOAD_ATTR":
            return None
        used.add(following.argval)
    return frozenset(used)


def has_plain_attributes(schema: Schema | None) -> bool:
    """Returns whether the attributes of elements are their columns, whatever their class is: as of Rows, NamedTuples.

    >>> from typing import NamedTuple
    >>> from headrace.model.schema import schema_of
    >>> class Bid(NamedTuple):
    ...     price: int
    >>> class Half(Bid):
    ...     price = property(lambda bid: bid[0] / 2)
    >>> [has_plain_attributes(schema_of(kind)) for kind in (Bid, Half, tuple[int])]
    [True, False, False]
    """
    if schema is None:
        return True  # elements are Rows
    if schema.kind != "named":
        return False
    attributes = [inspect.getattr_static(schema.cls, name) for name in ("__getattribute__", *schema.names)]
    return attributes[0] is tuple.__getattribute__ and all(type(each) is _TUPLE_GETTER for each in attributes[1:])
