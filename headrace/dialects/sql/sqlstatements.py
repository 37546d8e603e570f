"""Statements of continuous SQL, as they are once parsed: streams, tables, views, transforms, and their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ParseError, TokenError

from headrace.dialects.sql import grammar
from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.intervals import interval_of
from headrace.dialects.sql.literals import literal_value
from headrace.dialects.sql.sqlerrors import SqlError, error_at, parse_error
from headrace.model.knowncolumns import nearest_name

Kind = Literal["stream", "table", "view", "transform"]
Option = str | int | float | bool

STREAM_OPTIONS: Final = ("topic", "partitions", "retention", "idle_after")
TABLE_OPTIONS: Final = ("parquet", "database", "table")
VIEW_OPTIONS: Final = ("from", "ttl", "ttl_column", "sw", "step")
COPY_OPTIONS: Final = ("format", "header")


@dataclass(frozen=True)
class Statement:
    """A statement and the text that it was parsed from, with what was before it blank, so that errors say where."""

    text: str


@dataclass(frozen=True)
class CreateStream(Statement):
    """Declares a stream: its columns with Spark's types, the column with the event time, and how late rows may be.

    `disorder` is in microseconds, None without a watermark.
    """

    name: str
    columns: Mapping[str, str]
    event_time: str | None
    disorder: int | None
    options: Mapping[str, Option]
    if_not_exists: bool


@dataclass(frozen=True)
class CreateTable(Statement):
    """Declares a table that queries join with: its columns with Spark's types, and where its rows are.

    `options` have `parquet`, a path, or `table`, the name of a table, and `database`, the URL of its database; without
    one it is in the database of the session.
    """

    name: str
    columns: Mapping[str, str]
    options: Mapping[str, Option]
    if_not_exists: bool


@dataclass(frozen=True)
class CreateQuery(Statement):
    """Creates a view, which is a table of the query's answer, or a transform, which is a stream of its rows."""

    name: str
    kind: Kind
    query: exp.Query
    options: Mapping[str, Option]
    if_not_exists: bool
    into: str | None = None  # of a transform, the stream that its rows are appended to


@dataclass(frozen=True)
class Drop(Statement):
    """Drops a stream, a view or a transform."""

    name: str
    kind: Kind
    if_exists: bool


@dataclass(frozen=True)
class Show(Statement):
    """Lists streams, views or transforms."""

    kind: Kind


@dataclass(frozen=True)
class Describe(Statement):
    """Describes a stream, a view or a transform."""

    name: str


@dataclass(frozen=True)
class Insert(Statement):
    """Appends rows to a stream; `columns` are those that the rows have values for, None for all."""

    stream: str
    columns: tuple[str, ...] | None
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Copy(Statement):
    """Appends the rows of a file to a stream; without a file, those of the standard input.

    `columns` are those that rows without names have, None for all.
    """

    stream: str
    columns: tuple[str, ...] | None
    file: str | None
    options: Mapping[str, Option]


@dataclass(frozen=True)
class Select(Statement):
    """Reads views, as they are now."""

    query: exp.Query


@dataclass(frozen=True)
class Subscribe(Statement):
    """Follows the changes of a view."""

    view: str


@dataclass(frozen=True)
class Explain(Statement):
    """Describes how a query is computed, and what it shares with others."""

    query: exp.Query


@dataclass(frozen=True)
class SetRunning(Statement):
    """Pauses a view, or lets it go on."""

    view: str
    running: bool


def parse_statements(text: str) -> list[Statement]:
    """Parses statements, which semicolons end.

    >>> [type(each).__name__ for each in parse_statements("SHOW VIEWS; DROP VIEW minutes; -- done")]
    ['Show', 'Drop']
    """
    return [_statement(part) for part in _split(text)]


def _split(text: str) -> Iterator[str]:
    """Splits text at semicolons; a statement has blanks in the place of those before it."""
    try:
        tokens = ContinuousSql().tokenize(text)
    except TokenError as error:
        raise parse_error(error, text) from None
    start: int | None = None
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if start is not None:
                yield _blank(text[:start]) + text[start : token.start]
            start = None
        elif start is None:
            start = token.start
    if start is not None:
        yield _blank(text[:start]) + text[start:]


def _blank(text: str) -> str:
    return "".join(char if char in "\n\t" else " " for char in text)


def _statement(text: str) -> Statement:
    word = text.split(maxsplit=1)[0].lstrip("(").upper()
    if word and word not in _WORDS:
        near = nearest_name(word, _WORDS)
        hint = f"there are {', '.join(_WORDS)}" if near is None else f"did you mean {near}?"
        raise SqlError(f"no statement begins with {word!r:.40}; {hint}", text, len(text) - len(text.lstrip()))
    try:
        (node,) = sqlglot.parse(text, read=ContinuousSql)
    except (ParseError, TokenError) as error:
        raise parse_error(error, text) from None
    if isinstance(node, exp.Query):
        return Select(text, node)
    return _MAKERS[type(node)](text, node)


def _columns(text: str, node: exp.Expr, kind: str) -> dict[str, str]:
    columns: dict[str, str] = {}
    for each in node.args["columns"]:
        type_ = each.args.get("kind")
        if type_ is None:
            raise error_at(each, text, f"the column {each.name!r} needs a type, such as text, bigint or timestamp")
        if each.name.lower() in (name.lower() for name in columns):
            raise error_at(each, text, f"two columns are called {each.name!r}")
        columns[each.name] = type_.sql(dialect=ContinuousSql)
    if not columns:
        raise error_at(node, text, f"a {kind} has columns; write CREATE {kind.upper()} name (column type, ...)")
    return columns


def _create_table(text: str, node: exp.Expr) -> Statement:
    columns = _columns(text, node, "table")
    options = _options(text, node, TABLE_OPTIONS)
    if ("parquet" in options) == ("table" in options) or ("database" in options and "table" not in options):
        raise error_at(
            node.this,
            text,
            "a table is WITH (parquet = 'path') or WITH (database = 'postgresql://...', table = 'name')",
        )
    return CreateTable(text, node.this.name, columns, options, bool(node.args.get("exists")))


def _create_stream(text: str, node: exp.Expr) -> Statement:
    columns = _columns(text, node, "stream")
    watermark = node.args.get("watermark")
    event_time, disorder = (None, None) if watermark is None else _watermark(text, watermark, columns)
    options = _options(text, node, STREAM_OPTIONS)
    return CreateStream(text, node.this.name, columns, event_time, disorder, options, bool(node.args.get("exists")))


def _watermark(text: str, node: exp.Expr, columns: Mapping[str, str]) -> tuple[str, int]:
    """Returns the column of the event time, and by how much the watermark is behind it."""
    name, expression = node.this.name, node.expression
    if name not in columns:
        near = nearest_name(name, columns)
        raise error_at(node, text, f"there is no column {name!r}{'' if near is None else f', did you mean {near!r}?'}")
    column = expression.this if isinstance(expression, exp.Sub) else expression
    if not isinstance(column, exp.Column) or column.name != name:
        raise error_at(node, text, f"a watermark is {name} or {name} - INTERVAL '5' SECONDS")
    return name, interval_of(expression.expression, text) if isinstance(expression, exp.Sub) else 0


def _create_query(text: str, node: exp.Expr) -> Statement:
    kind: Kind = "view" if node.args["kind"] == "VIEW" else "transform"
    options, into = _options(text, node, VIEW_OPTIONS), node.args.get("into")
    if kind == "transform" and into is None:
        raise error_at(node.this, text, "a transform appends to a stream; write CREATE TRANSFORM name INTO stream AS")
    exists = bool(node.args.get("exists"))
    return CreateQuery(text, node.this.name, kind, node.args["query"], options, exists, into.name if into else None)


def _options(text: str, node: exp.Expr, known: tuple[str, ...]) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for each in node.args.get("options") or ():
        if not isinstance(each, exp.EQ) or not isinstance(each.expression, exp.Literal | exp.Boolean):
            raise error_at(each, text, "an option is name = value, as in WITH (partitions = 4, retention = '1 hour')")
        name = each.this.name.lower()
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; there are {', '.join(known)}" if near is None else f", did you mean {near!r}?"
            raise error_at(each, text, f"there is no option {name!r}{hint}")
        options[name] = literal_value(each.expression, text)
    return options


def _insert(text: str, node: exp.Expr) -> Statement:
    target, values = node.this, node.expression
    columns = None
    if isinstance(target, exp.Schema):
        columns, target = tuple(each.name for each in target.expressions), target.this
    if not isinstance(values, exp.Values):
        raise error_at(node, text, "INSERT takes VALUES (...), (...); rows of a query come from a TRANSFORM")
    rows = []
    for each in values.expressions:
        cells = each.expressions if isinstance(each, exp.Tuple) else [each]
        rows.append(tuple(literal_value(cell, text) for cell in cells))
        if columns is not None and len(cells) != len(columns):
            raise error_at(each, text, f"a row has {len(cells)} values for {len(columns)} columns")
    return Insert(text, target.name, columns, tuple(rows))


def _copy(text: str, node: exp.Expr) -> Statement:
    file, columns = node.args.get("file"), node.args.get("columns")
    names = None if columns is None else tuple(each.name for each in columns)
    return Copy(text, node.this.name, names, None if file is None else file.name, _options(text, node, COPY_OPTIONS))


_KINDS: Final[dict[str, Kind]] = {"STREAM": "stream", "TABLE": "table", "VIEW": "view", "TRANSFORM": "transform"}
_WORDS: Final = (
    *("CREATE", "DROP", "SHOW", "DESCRIBE", "INSERT", "COPY"),
    *("SELECT", "WITH", "SUBSCRIBE", "EXPLAIN", "PAUSE", "RESUME"),
)
"""The words that statements begin with."""


def _on_view(text: str, node: exp.Expr) -> Statement:
    name, kind = node.this.name, node.args["kind"]
    return Subscribe(text, name) if kind == "SUBSCRIBE" else SetRunning(text, name, kind == "RESUME")


def _explain(text: str, node: exp.Expr) -> Statement:
    if not isinstance(node.this, exp.Query):
        raise error_at(node, text, "EXPLAIN is followed by a SELECT")
    return Explain(text, node.this)


_MAKERS: Final[dict[type, Callable[[str, Any], Statement]]] = {
    grammar.CreateStream: _create_stream,
    grammar.CreateTable: _create_table,
    grammar.CreateQuery: _create_query,
    grammar.DropObject: lambda text, node: Drop(
        text, node.this.name, _KINDS[node.args["kind"]], bool(node.args.get("exists"))
    ),
    grammar.ShowObjects: lambda text, node: Show(text, _KINDS[node.args["kind"]]),
    grammar.OnView: _on_view,
    grammar.ExplainQuery: _explain,
    exp.Describe: lambda text, node: Describe(text, node.this.name),
    exp.Insert: _insert,
    grammar.CopyRows: _copy,
}
