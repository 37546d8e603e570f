"""Hashed values: equal ones are hashed alike, in Python and in Spark, in every process."""

from numbers import Number
from typing import Any

import numpy as np


def hashed_as(value: Any) -> int | str:
    """Returns what to hash: integers as int64 and strings as they are, like Spark; other values as encoded keys."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value and (value.isascii() or _is_unicode(value)):
        return value
    if isinstance(value, Number) and (integer := _int64(value)) is not None:
        return integer
    from headrace.model.keys import encode_key

    # The sketch accepts no bytes and ignores the empty string; after a NUL, no usual string collides.
    return "\0" + encode_key(value).decode("latin-1")


def _is_unicode(text: str) -> bool:
    """Returns whether the text has no lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _int64(number: Any) -> int | None:
    """Returns the int64 that equals a bool, float, Decimal, Fraction or complex; None if there is none."""
    try:
        integer = int(number.real)
    except (ValueError, OverflowError):  # NaN, infinity
        return None
    return integer if integer == number and -(2**63) <= integer < 2**63 else None
