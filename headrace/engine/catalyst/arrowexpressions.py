"""Translates expressions that Catalyst has analyzed to expressions over Arrow, where the answers are the same.

`translated` is the rule, and `_RULES` the list: kinds of Catalyst's expressions, each with the types for which a
property test has found Arrow's answers to be Spark's. Catalyst has found the columns, made implicit casts explicit and
knows the type of every part; text and Spark Columns are alike here. What is on no list has no translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headrace.engine.columns import expressions
from headrace.engine.columns.expressions import (
    As,
    AsBoolean,
    Attribute,
    Call,
    Case,
    Conjunction,
    Constant,
    Disjunction,
    Expression,
    FirstValue,
    Matched,
    Replaced,
    Rows,
    Slice,
    TimeFloor,
    TimePart,
    UnsureColumns,
)
from headrace.model.times import DAY, SECOND

_INTS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_TIME: Final = pa.timestamp("us", "UTC")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": _TIME,
    "timestamp_ntz": pa.timestamp("us"),
}
"""Types that expressions are computed with, besides decimals."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_PLAIN: Final = frozenset(_TYPES.values())
_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""Digits of a decimal that has all numbers of a type."""
_UTC: Final = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_ANSI: Final = "ANSI"
_UNITS: Final = {"second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND, "day": DAY, "dd": DAY}
"""Units of `date_trunc` that are so many microseconds, in UTC."""


class Untranslated(Exception):
    """An expression has no translation, for this reason."""


class Analyzed:
    """An expression that Catalyst has analyzed, over columns whose names are known by Catalyst's ids.

    `shared` are the common expressions around it, by their ids.
    """

    def __init__(self, node: Any, columns: Mapping[int, str], shared: Mapping[str, Analyzed] | None = None) -> None:
        self._node, self._columns, self._shared = node, columns, shared or {}
        self.kind: str = node.getClass().getSimpleName()

    @cached_property
    def children(self) -> list[Analyzed]:
        return [Analyzed(each, self._columns, self._shared) for each in elements(self._node.children())]

    @cached_property
    def type(self) -> pa.DataType:
        """The type of its values as Arrow has it."""
        text = self._node.dataType().simpleString()
        if (decimal := _DECIMAL.fullmatch(text)) is not None:
            return pa.decimal128(*map(int, decimal.groups()))
        if text not in _TYPES:
            raise Untranslated(f"{self.kind} of type {text}")
        return _TYPES[text]

    @property
    def name(self) -> str:
        """The name that its values get, which for a column may be written in another case than the column's."""
        return str(self._node.name())

    @property
    def column(self) -> str:
        """The name of the column that it is."""
        name = self._columns.get(self._node.exprId().id())
        if name is None:
            raise Untranslated(f"{self.name}, which is no column of these rows")
        return name

    def says(self, member: str) -> str:
        """Returns a property of its kind as text."""
        return str(getattr(self._node, member)())

    def computed(self) -> Constant:
        """Returns its value, which depends on no row, as Catalyst computes it."""
        value = self._node.eval(None)
        if types.is_decimal(self.type) and value is not None:
            value = Decimal(value.toString())
        elif types.is_string(self.type) and value is not None:
            value = value.toString()
        return Constant(pa.scalar(value, self.type))

    def with_shared(self) -> Analyzed:
        """Returns the expression in which common expressions are used, of one that defines them."""
        defined = {
            str(each.id()): Analyzed(each.child(), self._columns, self._shared) for each in elements(self._node.defs())
        }
        return Analyzed(self._node.child(), self._columns, {**self._shared, **defined})

    def common(self) -> Analyzed:
        """Returns the common expression that it stands for."""
        return self._shared[str(self._node.id())]

    def attributes(self) -> Iterator[tuple[str, pa.DataType]]:
        """Yields the names and types of the columns that it reads."""
        if self.kind == "AttributeReference":
            yield self.column, self.type
        elif self.kind == "CommonExpressionRef":
            yield from self.common().attributes()
        for child in [self.with_shared()] if self.kind == "With" else self.children:
            yield from child.attributes()


def elements(found: Any) -> list[Any]:
    """Returns the elements of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]


def selected(before: DataFrame, after: DataFrame) -> dict[str, Expression]:
    """Translates the columns of a `select` from a frame; raises Untranslated, if one of them has no translation."""
    listed = elements(_plan_over(before, after, "Project").projectList())
    columns = {each.name: translated(each) for each in map(_analyzer(before), listed)}
    if list(columns) != after.columns:
        raise Untranslated("several columns have one name")
    return columns


def condition(before: DataFrame, after: DataFrame) -> Expression:
    """Translates the condition of a `where`; raises Untranslated, if it has no translation."""
    return translated(_analyzer(before)(_plan_over(before, after, "Filter").condition()))


def _analyzer(frame: DataFrame) -> Callable[[Any], Analyzed]:
    """Returns what makes expressions over the columns of a frame."""
    output = elements(_plan_of(frame).output())
    return partial(Analyzed, columns={each.exprId().id(): each.name() for each in output})


def _plan_over(before: DataFrame, after: DataFrame, kind: str) -> Any:
    """Returns the plan of a frame, which is of this kind and right over that of another."""
    plan = _plan_of(after)
    if plan.nodeName() != kind or not plan.child().equals(_plan_of(before)):
        raise Untranslated(f"{plan.nodeName()} over {plan.child().nodeName()}")
    return plan


def _plan_of(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def translated(node: Analyzed) -> Expression:
    """Translates an expression; raises Untranslated, if it has no translation."""
    try:
        return _translate(node)
    except (UnsureColumns, pa.ArrowException, Py4JJavaError, PySparkException) as error:
        raise Untranslated(f"{node.kind}: {error}") from error


def _translate(node: Analyzed) -> Expression:
    if node.kind in _TRANSPARENT:
        return _translate(node.children[0])
    if node.kind == "AttributeReference":
        return Attribute(node.column)
    if node.kind == "With":
        return _translate(node.with_shared())
    if node.kind == "CommonExpressionRef":
        return _translate(node.common())
    if node.kind == "Literal":
        return node.computed()
    rule = _RULES.get(node.kind)
    if rule is None:
        raise Untranslated(node.kind)
    if node.kind == "Cast" and node.children[0].kind == "Literal":
        return node.computed()
    args = tuple(map(_translate, node.children))
    expression = rule(node, [child.type for child in node.children], args)
    if _type_over(expression, node) != node.type:
        raise Untranslated(f"{node.kind} would be of another type than {node.type}")
    return expression


def _type_over(expression: Expression, node: Analyzed) -> pa.DataType:
    """Returns the type that an expression has over no rows."""
    columns = dict(node.attributes())
    no_rows = pa.record_batch([pa.array([], kind) for kind in columns.values()], names=list(columns))
    return expression.array(Rows(no_rows)).type


Rule = Callable[[Analyzed, list[pa.DataType], tuple[Expression, ...]], Expression]
"""Makes an expression of a node, the types of its children, and their translations."""


def _of(
    function: Callable[..., Any],
    kinds: Collection[pa.DataType],
    *,
    decimals: bool = False,
    fails: Collection[pa.DataType] = (),
) -> Rule:
    """Makes the rule of a function that takes values of one of these types, all alike but for decimals.

    Of the types `fails` there are values for which it fails.
    """

    def rule(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
        if not ((len(set(of)) == 1 and of[0] in kinds) or (decimals and all(map(types.is_decimal, of)))):
            raise Untranslated(f"{node.kind} of {of}")
        return Call(function, args, may_fail=of[0] in fails)

    return rule


def _where(rule: Rule, **members: str) -> Rule:
    """Restricts a rule to nodes with these properties."""

    def restricted(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
        for member, value in members.items():
            if node.says(member) != value:
                raise Untranslated(f"{node.kind} with {member} {node.says(member)}")
        return rule(node, of, args)

    return restricted


def _made(kind: Callable[[tuple[Expression, ...]], Expression]) -> Rule:
    return lambda node, of, args: kind(args)


def _cast(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    (before,), after = of, node.type
    if before == after:
        return args[0]
    numbers = (*_INTS, *_FLOATS)
    if (before in numbers or before == pa.bool_()) and after in numbers:
        narrower = after in _INTS and (
            before in _FLOATS or (before in _INTS and _INTS.index(before) > _INTS.index(after))
        )
        return Call(As(after), args, may_fail=narrower)
    if before in numbers and after == pa.bool_():
        return Call(AsBoolean(), args)
    if before in _INTS and types.is_decimal(after) and after.precision - after.scale >= _DIGITS[before]:
        return Call(As(after), args)
    if types.is_decimal(before) and types.is_decimal(after) and _fits(before, after):
        return Call(As(after), args)
    if before in (pa.bool_(), *_INTS) and after == pa.string():
        return Call(As(after), args)
    if before == pa.date32() and after == pa.string():
        return Call(expressions.date_text, args, may_fail=True)
    if before == _TIME and after == pa.int64():
        return Call(expressions.to_seconds, args)
    if before == _TIME and after == pa.date32() and _in_utc(node):
        return Call(expressions.to_date, args)
    raise Untranslated(f"Cast of {before} to {after}")


def _fits(before: pa.DataType, after: pa.DataType) -> bool:
    """Tells whether a decimal has all values of another."""
    return bool(after.scale >= before.scale and after.precision - after.scale >= before.precision - before.scale)


def _in_utc(node: Analyzed) -> bool:
    return node.says("timeZoneId") in [f"Some({zone})" for zone in _UTC]


def _time_part(name: str, kind: pa.DataType) -> Rule:
    def rule(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
        if of != [kind] or (kind == _TIME and not _in_utc(node)):
            raise Untranslated(f"{node.kind} of {of}")
        return Call(TimePart(name), args)

    return rule


def _truncate(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    unit, times = _constant_text(args[0]).lower(), args[1:]
    if of[1] != _TIME or unit not in _UNITS or not _in_utc(node):
        raise Untranslated(f"{node.kind} of {of[1]} to {unit}")
    return Call(TimeFloor(_UNITS[unit]), times, may_fail=True)


def _date_format(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    if of[0] != _TIME or _constant_text(args[1]) != "yyyy-MM-dd" or not _in_utc(node):
        raise Untranslated(f"{node.kind} of {of[0]}")
    return Call(expressions.date_text, (Call(expressions.to_date, args[:1]),), may_fail=True)


def _substring(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    texts, *numbers = args
    first, length = [each.value.as_py() if isinstance(each, Constant) else None for each in numbers]
    if of[0] != pa.string() or first is None or length is None or first < 1 or length < 0:
        raise Untranslated("substring that begins or ends elsewhere in each row, or is counted from the end")
    return Call(Slice(first - 1, min(first - 1 + length, 2**31 - 1)), (texts,), may_fail=True)


def _constant_text(expression: Expression) -> str:
    if not isinstance(expression, Constant) or not expression.value.is_valid or not expression.value.as_py():
        raise Untranslated("text that is none, empty, or differs from row to row")
    return str(expression.value.as_py())


def _replace(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    texts, search, replacement = args
    if not isinstance(replacement, Constant) or not replacement.value.is_valid:
        raise Untranslated("replacement that differs from row to row")
    return Call(Replaced(_constant_text(search), replacement.value.as_py()), (texts,))


def _match(name: str) -> Rule:
    return lambda node, of, args: Call(Matched(name, _constant_text(args[1])), args[:1])


def _like(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    """Translates LIKE with percent signs at the ends only."""
    pattern = _constant_text(args[1])
    escape, before, after = node.says("escapeChar"), pattern.startswith("%"), pattern.endswith("%")
    text = pattern.removeprefix("%").removesuffix("%")
    if not text or any(each in text for each in ("%", "_", escape)):
        raise Untranslated(f"LIKE {pattern!r}")
    if before and after:
        return Call(Matched("match_substring", text), args[:1])
    if not before and not after:
        return Call(expressions.equal, (args[0], Constant(pa.scalar(text))))
    return Call(Matched("ends_with" if before else "starts_with", text), args[:1])


def _is_in(node: Analyzed, of: list[pa.DataType], args: tuple[Expression, ...]) -> Expression:
    if not all(isinstance(each, Constant) for each in args[1:]):
        raise Untranslated("IN with expressions")
    return _compared(expressions.is_in)(node, of, args)


def _compared(function: Callable[..., Any]) -> Rule:
    return _of(function, _PLAIN - {pa.bool_()}, decimals=True)


_arithmetic: Final = partial(_where, evalMode=_ANSI)
_checked: Final = partial(_where, failOnError="True")

_TRANSPARENT: Final = frozenset(["Between", "Nvl", "Nvl2", "CommonExpressionDef", "Alias"])
"""Kinds of expressions that stand for another, their only child."""

_RULES: Final[Mapping[str, Rule]] = {
    "Add": _arithmetic(_of(pc.add_checked, (*_INTS, *_FLOATS), decimals=True, fails=_INTS)),
    "Subtract": _arithmetic(_of(pc.subtract_checked, (*_INTS, *_FLOATS), decimals=True, fails=_INTS)),
    "Multiply": _arithmetic(_of(pc.multiply_checked, (*_INTS, *_FLOATS), decimals=True, fails=_INTS)),
    "Divide": _arithmetic(_of(pc.divide_checked, [pa.float64()], fails=[pa.float64()])),
    "IntegralDivide": _arithmetic(_of(pc.divide_checked, [pa.int64()], fails=_INTS)),
    "Remainder": _arithmetic(_of(expressions.remainder, _INTS, fails=_INTS)),
    "Pmod": _arithmetic(_of(expressions.positive_remainder, _INTS, fails=_INTS)),
    "UnaryMinus": _checked(_of(pc.negate_checked, (*_INTS, *_FLOATS), fails=_INTS)),
    "Abs": _checked(_of(pc.abs_checked, (*_INTS, *_FLOATS), fails=_INTS)),
    "EqualTo": _of(expressions.equal, _PLAIN, decimals=True),
    "EqualNullSafe": _of(expressions.equal_null_safe, _PLAIN, decimals=True),
    "LessThan": _compared(expressions.less),
    "LessThanOrEqual": _compared(expressions.less_equal),
    "GreaterThan": _compared(expressions.greater),
    "GreaterThanOrEqual": _compared(expressions.greater_equal),
    "In": _is_in,
    "And": _made(Conjunction),
    "Or": _made(Disjunction),
    "Not": _of(pc.invert, [pa.bool_()]),
    "IsNull": lambda node, of, args: Call(pc.is_null, args),
    "IsNotNull": lambda node, of, args: Call(pc.is_valid, args),
    "IsNaN": _of(expressions.is_nan, _FLOATS),
    "CaseWhen": _made(Case),
    "If": _made(Case),
    "Coalesce": _made(FirstValue),
    "Greatest": _of(expressions.greatest, _INTS),
    "Least": _of(expressions.least, _INTS),
    "Cast": _where(_cast, evalMode=_ANSI),
    "Hour": _time_part("hour", _TIME),
    "Minute": _time_part("minute", _TIME),
    "Second": _time_part("second", _TIME),
    "Year": _time_part("year", pa.date32()),
    "Month": _time_part("month", pa.date32()),
    "DayOfMonth": _time_part("day", pa.date32()),
    "MicrosToTimestamp": _of(expressions.from_micros, [pa.int64()]),
    "TruncTimestamp": _truncate,
    "DateFormatClass": _date_format,
    "Length": _of(expressions.length, [pa.string()], fails=[pa.string()]),
    "Substring": _substring,
    "StringReplace": _replace,
    "Like": _like,
    "StartsWith": _match("starts_with"),
    "EndsWith": _match("ends_with"),
    "Contains": _match("match_substring"),
    "Concat": _of(expressions.concat, [pa.string()]),
}
"""How expressions are translated, by their kind: the stated list."""
