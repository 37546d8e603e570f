"""Functions of Python that queries call by name: those that whoever runs the session has registered, and no others.

A function takes the values of a row and gives one value or, with `rows`, any number of them, a row for each. What it
raises is an error of the row alone: the row is left out and counted, as with any expression that fails.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headrace.dialects.sql.aggregates import is_aggregate
from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.sqlerrors import SqlError, error_at
from headrace.views.sparksql.sparkfunctions import FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULT: Final = "struct<value:{},error:string>"
_LONGEST: Final = 200  # characters of what a function raised


@dataclass(frozen=True)
class SqlFunction:
    """A function for queries: its name there, what it calls, and the type of its values in Spark's words."""

    name: str
    function: Callable[..., Any]
    returns: str
    rows: bool = False
    vectorized: bool = False

    def __call__(self, *values: Any) -> Any:
        """Calls the function, as Python does."""
        return self.function(*values)


def sql_function(
    returns: str, *, name: str | None = None, rows: bool = False, vectorized: bool = False
) -> Callable[[Callable[..., Any]], SqlFunction]:
    """Makes a function of Python one that queries can call, once it is registered with a session.

    `returns` is the type of its values. With `rows` it gives any number of values for a row, each of which becomes a
    row of the query. With `vectorized` it takes and gives Arrow arrays, of many rows at once; with `rows`, of lists.

    >>> import headrace as hr
    >>> @hr.sql_function("double")
    ... def with_tax(price):
    ...     return price * 1.2
    >>> with_tax(10.0), with_tax.name
    (12.0, 'with_tax')
    """

    def decorate(function: Callable[..., Any]) -> SqlFunction:
        return SqlFunction(name or function.__name__, function, returns, rows, vectorized)

    return decorate


def load_functions(file: Path) -> list[SqlFunction]:
    """Runs a file of Python, and returns the functions for queries that it defines."""
    try:
        defined = runpy.run_path(str(file), run_name="headrace_functions")
    except Exception as error:
        raise SqlError(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    found = {id(each): each for each in defined.values() if isinstance(each, SqlFunction)}
    if not found:
        raise SqlError(f"{file} defines no function for queries; write @hr.sql_function('double') before one")
    return list(found.values())


@dataclass(frozen=True)
class SqlFunctions:
    """The functions that are registered with a session, by name; names are the same in any case."""

    by_name: Mapping[str, SqlFunction] = field(default_factory=dict)

    @staticmethod
    def of(functions: Iterable[SqlFunction]) -> SqlFunctions:
        """Takes functions; refuses names that mean something else already."""
        by_name: dict[str, SqlFunction] = {}
        for each in functions:
            if not isinstance(each, SqlFunction):
                raise SqlError(f"{each!r} is no function for queries; write @hr.sql_function('double') before it")
            name = each.name.lower()
            if name in by_name:
                raise SqlError(f"two functions are called {name!r}; give one another name=")
            if not each.name.isidentifier() or name in FUNCTIONS or not _is_free(name):
                raise SqlError(f"{name!r} is a name of SQL's own; give the function another name=")
            by_name[name] = each
        return SqlFunctions(by_name)

    def register(self, spark: SparkSession | None) -> None:
        """Registers the functions with Spark."""
        if not self.by_name:
            return
        from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

        from headrace.engine.spark.session import spark_session

        spark = spark or spark_session()
        for name, each in self.by_name.items():
            kind = f"array<{each.returns}>" if each.rows else each.returns
            call: Any = _Call(each, _arrow_type(each, kind))
            # Type hints would have to say how many arguments there are.
            made: Any = arrow_udf(lambda *arrays, call=call: call(*arrays), _RESULT.format(kind), ArrowUDFType.SCALAR)
            spark.udf.register(name, made)

    def called_in(self, query: exp.Query, text: str) -> exp.Query:
        """Returns a query in which calls of the functions are expressions of Spark's, which raise what they raised."""
        if not self.by_name or not any(self._called(node) for node in query.find_all(exp.Anonymous)):
            return query
        query = query.copy()
        for node in list(query.find_all(exp.Anonymous)):
            if (function := self._called(node)) is None:
                continue
            if not node.expressions:
                raise error_at(node, text, f"{node.name}() needs an argument, of whose row its value is")
            projection = node.parent if isinstance(node.parent, exp.Alias) else node
            if function.rows and not isinstance(projection.parent, exp.Select):
                raise error_at(node, text, f"{node.name}() gives rows; it stands by itself in SELECT, with AS name")
        for select in list(query.find_all(exp.Select)):
            while arguments := self._computed_arguments(select):
                _compute_first(select, arguments, text)
        for select in list(query.find_all(exp.Select)):
            self._spread(select, text)
        for node in reversed(list(query.find_all(exp.Anonymous))):  # arguments before what is called with them
            if self._called(node) is not None:
                value = _value_of(node)
                node.replace(exp.alias_(value, node.name) if isinstance(node.parent, exp.Select) else value)
        return query

    def nests(self, query: exp.Query, text: str) -> bool:
        """Returns whether calls of the functions make queries in FROM of a plain SELECT."""
        return len(list(self.called_in(query, text).find_all(exp.Select))) > 1

    def _computed_arguments(self, select: exp.Select) -> list[exp.Expr]:
        """Returns arguments of calls in a SELECT that are to be computed first, the innermost of them.

        Python gets its arguments before anything else is computed, so that a failing one would fail the whole batch.
        """
        found: list[exp.Expr] = []
        for call in select.find_all(exp.Anonymous):
            if self._called(call) is None or call.find_ancestor(exp.Select) is not select:
                continue
            found += [each for each in call.expressions if not isinstance(each, exp.Column | exp.Literal | exp.Null)]
        return [each for each in found if not any(other is not each and _is_in(other, each) for other in found)]

    def _called(self, node: exp.Anonymous) -> SqlFunction | None:
        return self.by_name.get(node.name.lower())

    def _spread(self, select: exp.Select, text: str) -> None:
        """Puts a SELECT around one with functions that give rows, in which each of their values is a row."""
        rows = {
            each.alias_or_name
            for each in select.expressions
            if isinstance(call := each.unalias(), exp.Anonymous) and (found := self._called(call)) and found.rows
        }
        if not rows:
            return
        for each in select.expressions:
            if each.is_star or not each.alias_or_name:
                raise error_at(each, text, "beside a function that gives rows, columns are named one by one, with AS")
        # A row that is no element has no list, and must stay: by it the watermark moves, and failures are counted.
        spread = {name: f"explode(coalesce(`{name}`, array(NULL)))" for name in rows}
        names = [each.alias_or_name for each in select.expressions]
        inner = select.copy()
        inner.set("emit", None)
        inner.set("expressions", [exp.alias_(each.unalias().copy(), each.alias_or_name) for each in select.expressions])
        columns = [f"{spread.get(name, f'`{name}`')} AS `{name}`" for name in names]
        outer = sqlglot.parse_one(f"SELECT {', '.join(columns)} FROM (SELECT 1) AS _rows", dialect=ContinuousSql)
        outer.args["from_"].this.set("this", inner)
        for name in list(select.args):
            if name != "emit":
                select.set(name, outer.args.get(name))


def _is_in(node: exp.Expr, other: exp.Expr) -> bool:
    return any(each is node for each in other.walk())


def _compute_first(select: exp.Select, arguments: list[exp.Expr], text: str) -> None:
    """Puts arguments of functions into a query in FROM, under names of their own."""
    source = select.args["from_"].this if select.args.get("from_") is not None else None
    named = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
    plain = (named or isinstance(source, exp.Subquery)) and not select.args.get("joins")
    stars = any(each.is_star for each in select.expressions)
    for each in arguments:
        if not plain or stars or any(map(is_aggregate, each.walk())):
            raise error_at(
                each,
                text,
                "this argument of a Python function is to be computed before; give it a name in a query in FROM, as in "
                "SELECT f(x) FROM (SELECT a / b AS x FROM s)",
            )
    where = select.args.get("where")
    early = where is not None and not any(_is_in(each, where) for each in arguments)  # rows that it drops do not matter
    assert source is not None
    inner = exp.select("*").from_(source.copy())
    if early and where is not None:
        inner.set("where", where.copy())
        select.set("where", None)
    for each in arguments:
        name = f"_argument{len(list(inner.find_all(exp.Alias)))}_{len(list(select.find_all(exp.Subquery)))}"
        inner.append("expressions", exp.alias_(each.copy(), name))
        each.replace(exp.column(name))
    select.args["from_"].set("this", inner.subquery(source.alias_or_name))


def _is_free(name: str) -> bool:
    """Returns whether the parser takes a call of this name for one of any function."""
    try:
        return isinstance(sqlglot.parse_one(f"{name}(x)", dialect=ContinuousSql), exp.Anonymous)
    except sqlglot.errors.SqlglotError:
        return False


def _value_of(call: exp.Anonymous) -> exp.Expr:
    """Returns the value of a call, or an expression that fails with what the function raised."""

    def part(name: str) -> exp.Expr:
        return exp.Dot(this=call.copy(), expression=exp.to_identifier(name))

    failure = exp.Anonymous(this="raise_error", expressions=[part("error")])
    return exp.If(this=exp.Is(this=part("error"), expression=exp.Null()), true=part("value"), false=failure)


def _arrow_type(function: SqlFunction, kind: str) -> pa.DataType:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    try:
        parsed = StructType.fromDDL(f"value {kind}")
        assert isinstance(parsed, StructType)
        return to_arrow_type(parsed["value"].dataType, timezone="UTC")
    except PySparkException as error:
        raise SqlError(f"{function.name}: {function.returns!r} is no type of Spark's: {error}") from None


@dataclass(frozen=True)
class _Call:
    """Calls a function over arrays; gives a value or an error for each row."""

    function: SqlFunction
    kind: pa.DataType

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        values, errors = self._at_once(arrays) if self.function.vectorized else self._by_rows(arrays)
        return pa.StructArray.from_arrays([values, pa.array(errors, pa.string())], ["value", "error"])

    def _at_once(self, arrays: tuple[pa.Array, ...]) -> tuple[pa.Array, list[str | None]]:
        try:
            return self._array(arrays), [None] * len(arrays[0])
        except Exception:  # of which rows, shows when they are taken one by one
            return self._collected([self._tried(partial(self._array, row)) for row in _rows(arrays)])

    def _array(self, arrays: tuple[pa.Array, ...]) -> pa.Array:
        result = self.function.function(*arrays)
        result = result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result
        if not isinstance(result, pa.Array) or len(result) != len(arrays[0]):
            raise TypeError(f"{self.function.name} is vectorized, and gives an Arrow array of as many values as rows")
        if self.function.rows and result.null_count:  # null is no rows
            result = pa.array([[] if each is None else each for each in result.to_pylist()], self.kind)
        return result.cast(self.kind)

    def _by_rows(self, arrays: tuple[pa.Array, ...]) -> tuple[pa.Array, list[str | None]]:
        function, give_rows = self.function.function, self.function.rows
        values: list[Any] = []
        errors: list[str | None] = []
        for row in zip(*(array.to_pylist() for array in arrays), strict=True):
            try:
                value = function(*row)
                values.append(list(value or ()) if give_rows else value)
                errors.append(None)
            except Exception as error:
                values.append(None)
                errors.append(_described(error))
        try:
            return pa.array(values, self.kind), errors
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            found = [
                (None, error) if error is not None else self._tried(partial(pa.array, [value], self.kind))
                for value, error in zip(values, errors, strict=True)
            ]
            return self._collected(found)

    def _tried(self, make: Callable[[], pa.Array]) -> tuple[pa.Array | None, str | None]:
        try:
            return make(), None
        except Exception as error:
            return None, _described(error)

    def _collected(self, found: list[tuple[pa.Array | None, str | None]]) -> tuple[pa.Array, list[str | None]]:
        arrays = [pa.nulls(1, self.kind) if array is None else array for array, _ in found]
        return pa.concat_arrays(arrays or [pa.nulls(0, self.kind)]), [error for _, error in found]


def _rows(arrays: tuple[pa.Array, ...]) -> Iterable[tuple[pa.Array, ...]]:
    return (tuple(array.slice(at, 1) for array in arrays) for at in range(len(arrays[0])))


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST]
