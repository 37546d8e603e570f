"""Evaluates expressions over columns of Arrow, with the answers of Spark's SQL in ANSI mode.

An expression is a tree that workers get. Which expressions of Spark's have one, and for which types, is decided in
`engine/catalyst/arrowexpressions.py`. A function here gives Spark's answer, or it fails: then Spark has to compute
these rows, and knows the answer or the error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.errors import HeadraceError
from headrace.model.times import DAY, SECOND


class UnsureColumns(HeadraceError):
    """An expression over these rows is left to Spark: it fails, or Arrow might give another answer."""


@dataclass
class Rows:
    """A batch of rows, and what was computed of them already."""

    batch: pa.RecordBatch
    _computed: dict[Expression, Any] = field(default_factory=dict)

    def value(self, expression: Expression) -> Any:
        """Returns the value of an expression: an array, or a scalar if it is the same for all rows."""
        if expression not in self._computed:
            self._computed[expression] = expression.over(self)
        return self._computed[expression]

    def value_where(self, mask: Any, expression: Expression) -> Any:
        """Returns the value of an expression that may fail on other rows than those of a mask; null elsewhere.

        >>> rows = Rows(pa.record_batch({"a": [6, 7], "b": [3, 0]}))
        >>> ratio = Call(pc.divide_checked, (Attribute("a"), Attribute("b")), may_fail=True)
        >>> rows.value_where(pa.array([True, False]), ratio).to_pylist()
        [2, None]
        """
        if not expression.may_fail:
            return self.value(expression)
        mask = _array(mask, self.batch.num_rows).fill_null(False)
        if mask.true_count == len(mask):
            return self.value(expression)
        here = Rows(self.batch.filter(mask))
        values = _array(here.value(expression), here.batch.num_rows)
        chosen = np.asarray(mask)
        places = pa.array(np.cumsum(chosen) - 1, mask=~chosen)
        return values.take(places)


class Expression(ABC):
    """An expression over the columns of a batch."""

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""

    @property
    @abstractmethod
    def may_fail(self) -> bool:
        """Whether there are values for which it fails."""

    @abstractmethod
    def over(self, rows: Rows) -> Any:
        """Computes the value: an array, or a scalar if it is the same for all rows."""

    def array(self, rows: Rows) -> pa.Array:
        """Returns the value for each row.

        >>> Call(pc.add_checked, (Attribute("a"), Constant(pa.scalar(1)))).array(Rows(pa.record_batch({"a": [1, 2]})))
        <pyarrow.lib.Int64Array object at ...>
        [
          2,
          3
        ]
        """
        try:
            return _array(rows.value(self), rows.batch.num_rows)
        except pa.ArrowException as error:
            raise UnsureColumns(str(error)) from error


@dataclass(frozen=True)
class Attribute(Expression):
    """A column by its name."""

    name: str
    may_fail = False

    @property
    def columns(self) -> frozenset[str]:
        return frozenset([self.name])

    def over(self, rows: Rows) -> Any:
        return rows.batch.column(self.name)


@dataclass(frozen=True)
class Constant(Expression):
    """A value that is the same for all rows."""

    value: pa.Scalar = field(compare=False)
    bits: tuple[Any, ...] = field(init=False)  # by which it is told from others, such as 0.0 from -0.0
    columns = frozenset()
    may_fail = False

    def __post_init__(self) -> None:
        buffers = pa.array([self.value]).buffers()
        object.__setattr__(
            self, "bits", (self.value.type, *(each if each is None else each.to_pybytes() for each in buffers))
        )

    def over(self, rows: Rows) -> Any:
        return self.value


@dataclass(frozen=True)
class _Node(Expression):
    args: tuple[Expression, ...]

    @property
    def columns(self) -> frozenset[str]:
        return frozenset().union(*(each.columns for each in self.args))

    @property
    def may_fail(self) -> bool:
        return any(each.may_fail for each in self.args)


@dataclass(frozen=True, init=False)
class Call(_Node):
    """A function of the values of other expressions."""

    function: Callable[..., Any]
    fails: bool

    def __init__(self, function: Callable[..., Any], args: tuple[Expression, ...], *, may_fail: bool = False) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "args", args)
        object.__setattr__(self, "fails", may_fail)

    @property
    def may_fail(self) -> bool:
        return self.fails or super().may_fail

    def over(self, rows: Rows) -> Any:
        return self.function(*map(rows.value, self.args))


@dataclass(frozen=True)
class Conjunction(_Node):
    """AND: what follows a false condition is not computed."""

    def over(self, rows: Rows) -> Any:
        left, right = self.args
        first = rows.value(left)
        return pc.and_kleene(first, rows.value_where(pc.fill_null(first, True), right))


@dataclass(frozen=True)
class Disjunction(_Node):
    """OR: what follows a true condition is not computed."""

    def over(self, rows: Rows) -> Any:
        left, right = self.args
        first = rows.value(left)
        return pc.or_kleene(first, rows.value_where(pc.invert(pc.fill_null(first, False)), right))


@dataclass(frozen=True)
class Case(_Node):
    """CASE: conditions and values in turn, and perhaps a last value; nothing is computed for rows of earlier ones.

    >>> case = Case((Attribute("a"), Constant(pa.scalar("x")), Constant(pa.scalar("y"))))
    >>> case.array(Rows(pa.record_batch({"a": [True, False, None]}))).to_pylist()
    ['x', 'y', 'y']
    """

    def over(self, rows: Rows) -> Any:
        pairs = list(zip(self.args[::2], self.args[1::2], strict=False))
        rest: Any = pa.scalar(True)
        chosen: list[tuple[Any, Any]] = []
        for condition, value in pairs:
            here = pc.and_(rest, pc.fill_null(rows.value_where(rest, condition), False))
            chosen.append((here, rows.value_where(here, value)))
            rest = pc.and_not(rest, here)
        last = rows.value_where(rest, self.args[-1]) if len(self.args) % 2 else pa.scalar(None, chosen[0][1].type)
        return reduce(lambda otherwise, each: pc.if_else(each[0], each[1], otherwise), reversed(chosen), last)


@dataclass(frozen=True)
class FirstValue(_Node):
    """COALESCE: what follows a value is not computed."""

    def over(self, rows: Rows) -> Any:
        first, *others = self.args
        value = rows.value(first)
        for other in others:
            value = pc.coalesce(value, rows.value_where(pc.is_null(value), other))
        return value


def _array(value: Any, size: int) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, size)
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def remainder(a: Any, b: Any) -> Any:
    """Returns the remainder of whole numbers, which has the sign of the dividend.

    >>> remainder(pa.array([7, -7]), pa.scalar(4)).to_pylist()
    [3, -3]
    """
    return pc.subtract(a, pc.multiply(pc.divide_checked(a, b), b))


def positive_remainder(a: Any, b: Any) -> Any:
    """Returns the remainder of whole numbers, which is not negative if the divisor is positive.

    >>> positive_remainder(pa.array([7, -7]), pa.scalar(4)).to_pylist()
    [3, 1]
    """
    rest = remainder(a, b)
    return pc.if_else(pc.less(rest, pa.scalar(0, rest.type)), remainder(pc.add_checked(rest, b), b), rest)


def _floor_divided(values: Any, by: int) -> Any:
    """Returns whole numbers divided and rounded down."""
    divisor = pa.scalar(by, pa.int64())
    quotient = pc.divide(values, divisor)
    return pc.subtract(quotient, pc.cast(pc.greater(pc.multiply(quotient, divisor), values), pa.int64()))


def equal(a: Any, b: Any) -> Any:
    """Returns whether values are equal; NaN is equal to NaN.

    >>> equal(pa.array([float("nan"), 0.0]), pa.array([float("nan"), -0.0])).to_pylist()
    [True, True]
    """
    if not _may_be_nan(a) or not _may_be_nan(b):
        return pc.equal(a, b)
    return pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))


def less(a: Any, b: Any) -> Any:
    """Returns whether the first values are less; NaN is greater than all others.

    >>> less(pa.array([1.0, float("nan")]), pa.array([float("nan"), 1.0])).to_pylist()
    [True, False]
    """
    if not _may_be_nan(b):
        return pc.less(a, b)
    return pc.or_(pc.less(a, b), pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)) if _may_be_nan(a) else pc.is_nan(b))


def less_equal(a: Any, b: Any) -> Any:
    """Returns whether the first values are less or equal."""
    return pc.or_(pc.less_equal(a, b), pc.is_nan(b)) if _may_be_nan(b) else pc.less_equal(a, b)


def greater(a: Any, b: Any) -> Any:
    """Returns whether the first values are greater."""
    return less(b, a)


def greater_equal(a: Any, b: Any) -> Any:
    """Returns whether the first values are greater or equal."""
    return less_equal(b, a)


def _may_be_nan(values: Any) -> bool:
    return types.is_floating(values.type) and not (isinstance(values, pa.Scalar) and values.as_py() == values.as_py())


def equal_null_safe(a: Any, b: Any) -> Any:
    """Returns whether values are equal, or both null.

    >>> equal_null_safe(pa.array([1, None, None]), pa.array([1, None, 2])).to_pylist()
    [True, True, False]
    """
    return pc.if_else(pc.or_(pc.is_null(a), pc.is_null(b)), pc.equal(pc.is_null(a), pc.is_null(b)), equal(a, b))


def is_in(value: Any, *choices: Any) -> Any:
    """Returns whether a value is one of the choices; null if it, or a choice where none is equal, is null.

    >>> is_in(pa.array([1, 2, None]), pa.scalar(1), pa.scalar(None, pa.int64())).to_pylist()
    [True, None, None]
    """
    return reduce(pc.or_kleene, [equal(value, each) for each in choices])


def greatest(*values: Any) -> Any:
    """Returns the greatest of values that are there."""
    return pc.max_element_wise(*values)


def least(*values: Any) -> Any:
    """Returns the least of values that are there."""
    return pc.min_element_wise(*values)


def is_nan(values: Any) -> Any:
    """Returns whether values are NaN; null is not."""
    return pc.fill_null(pc.is_nan(values), False)


def identity(values: Any) -> Any:
    """Returns the values."""
    return values


@dataclass(frozen=True)
class As:
    """Casts values to a type, in which rounding is as C++ and Java do; a number that is too large fails."""

    kind: pa.DataType

    def __call__(self, values: Any) -> Any:
        if types.is_floating(self.kind):
            return pc.cast(values, self.kind, safe=False)
        if types.is_floating(values.type):
            values = pc.trunc(values)
        return pc.cast(values, self.kind)


@dataclass(frozen=True)
class AsBoolean:
    """Casts numbers to booleans: all but zero are true."""

    def __call__(self, values: Any) -> Any:
        return pc.not_equal(values, pa.scalar(0, values.type))


@dataclass(frozen=True)
class TimePart:
    """A part of dates, or of times in UTC, such as the hour."""

    name: str

    def __call__(self, values: Any) -> Any:
        return pc.cast(pc.call_function(self.name, [values]), pa.int32())


def to_date(times: Any) -> Any:
    """Returns the dates of times in UTC."""
    return pc.cast(times, pa.date32())


def from_micros(micros: Any) -> Any:
    """Returns the times that are so many microseconds after 1970."""
    return pc.cast(micros, pa.timestamp("us", "UTC"))


def to_seconds(times: Any) -> Any:
    """Returns the whole seconds from 1970 to times."""
    return _floor_divided(pc.cast(times, pa.int64()), SECOND)


@dataclass(frozen=True)
class TimeFloor:
    """Rounds times down to a multiple of so many microseconds since 1970.

    >>> TimeFloor(10)(pa.array([25, -1], pa.timestamp("us", "UTC"))).cast(pa.int64()).to_pylist()
    [20, -10]
    """

    unit: int

    def __call__(self, times: Any) -> Any:
        floors = _floor_divided(pc.cast(times, pa.int64()), self.unit)
        return pc.cast(pc.multiply_checked(floors, pa.scalar(self.unit, pa.int64())), times.type)


def date_text(dates: Any) -> Any:
    """Returns dates as text, such as 2026-01-31; fails if one is not in the years 1 to 9999."""
    days = pc.cast(dates, pa.int32())
    ends = [pc.min(days).as_py(), pc.max(days).as_py()] if isinstance(days, pa.Array) else [days.as_py()]
    if not all(day is None or YEAR_1 <= day * DAY < YEAR_10000 for day in ends):
        raise pa.ArrowInvalid("a date is not in the years 1 to 9999")
    return pc.cast(dates, pa.string())


def length(texts: Any) -> Any:
    """Returns the lengths of texts in characters; fails if they are not UTF-8."""
    return pc.utf8_length(_utf8(texts))


@dataclass(frozen=True)
class Slice:
    """Cuts characters out of texts; fails if they are not UTF-8."""

    start: int
    stop: int

    def __call__(self, texts: Any) -> Any:
        return pc.utf8_slice_codeunits(_utf8(texts), self.start, self.stop)


def _utf8(texts: Any) -> Any:
    if isinstance(texts, pa.Array):
        texts.validate(full=True)
    return texts


@dataclass(frozen=True)
class Replaced:
    """Replaces each occurrence of a text in others."""

    search: str
    replacement: str

    def __call__(self, texts: Any) -> Any:
        return pc.replace_substring(texts, self.search, self.replacement)


@dataclass(frozen=True)
class Matched:
    """Tests texts by a function of Arrow's with a pattern, which is text and no expression."""

    name: str
    pattern: str

    def __call__(self, texts: Any) -> Any:
        return pc.call_function(self.name, [texts], pc.MatchSubstringOptions(self.pattern))


def concat(*texts: Any) -> Any:
    """Puts texts together; null if one is."""
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")
