"""Identities: what must not change about a piece of work while there is state of it, as JSON values.

A checkpoint keeps them, and a pipeline that goes on from it must have the same. They name classes and their fields, and
no text that is meant for people, so messages may change freely. Tests pin those of every kind of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

Identity = Any
"""A JSON value: dicts, lists, text, numbers, booleans and None."""


def identity_of(value: object) -> Identity:
    """Returns the identity of a declared object, such as a window or an aggregation.

    If the object has a method `state_identity`, it is what that returns. Of a dataclass it is the name of the class and
    the fields that are not as by default, so that a new field with a default changes no identity. Of a function it is
    the name; of any other object, the name of its class.

    >>> from headrace.model.algebra import TopFn
    >>> from headrace.model.windows import FixedWindows
    >>> identity_of(FixedWindows("10 s")), identity_of(TopFn(3))
    ({'type': 'FixedWindows', 'size': 10000000, 'offset': 0}, {'type': 'TopFn', 'n': 3})
    >>> identity_of(len), identity_of((1, None, "a"))
    ('len', [1, None, 'a'])
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [identity_of(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): identity_of(item) for key, item in value.items()}
    if isinstance(name := getattr(value, "__qualname__", None), str):
        return name
    if callable(identity := getattr(value, "state_identity", None)):
        return identity()
    declared = {"type": type(value).__name__}
    if not is_dataclass(value):
        return declared
    for field in fields(value):
        item, default = getattr(value, field.name), field.default
        if default is MISSING and field.default_factory is not MISSING:
            default = field.default_factory()
        if field.compare and (default is MISSING or item != default):
            declared[field.name] = identity_of(item)
    return declared
