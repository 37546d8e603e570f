"""Hypothesis strategies of SQL statements: DuckDB's grammar and functions, with names that an attacker would choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb
from hypothesis import strategies as st

# Their numbers say how much memory they take: they get small ones.
GROWING = frozenset(
    {"repeat", "lpad", "rpad", "range", "generate_series", "bar", "format", "printf", "list_resize", "array_resize"}
    | {"equi_width_bins", "bitstring", "to_base", "generate_subscripts", "sleep_ms", "pg_sleep"}
)
SYSTEM = [
    *["sqlite_master", "SQLITE_MASTER", "duckdb_views", "DUCKDB_VIEWS", "duckdb_tables", "duckdb_settings", "pg_class"],
    *["information_schema.tables", "pg_catalog.pg_views", "main.sqlite_master", "memory.main.events", "main.events"],
    *["temp.main.hits", "system.main.duckdb_views", "other.secrets", "secrets", "memory.other.secrets", "recurring.x"],
]
GIVEN = ["hits", "events", "HITS", '"Events"', "events"]
ALIASES = ["a", "b", "hits", "events", "x"]
COLUMNS = ["n", "url", "n", "url", "n", "url", "user"]  # both tables have these
OTHER_COLUMNS = ["_offset", "a", "x", "hidden", "filename", "rowid", "events.url", "a.url", "file_row_number", "sql"]
LITERALS = {
    "number": ["0", "1", "2", "9", "-1", "1.5", "NULL", "1e3", "9::UTINYINT", "3::HUGEINT", "n"],
    "text": [
        *["'a'", "''", "'1'", "'%'", "'{\"a\": 1}'", "'$.a'", "'sum'", "'year'", "'2026-01-31'", "'UTC'", "url", "url"],
        *["'x'", "'custom_user_agent'", "'other.secrets'", "'FROM secrets'", "'SELECT getvariable(''x'')'"],
    ],
    "time": ["DATE '2026-01-31'", "TIMESTAMP '2026-01-31 12:00:00'", "TIMESTAMPTZ '2026-01-31 12:00:00+00'", "now()"],
    "interval": ["INTERVAL 1 DAY", "INTERVAL '2' HOUR"],
    "boolean": ["true", "false", "n > 1", "url LIKE '1%'", "n IS NULL", "url::INTEGER < 9", "url::JSON IS NOT NULL"],
    "list": ["[1, 2]", "['a', 'b']", "[]", "[n, 2]", "[url]", "range(3)"],
    "lambda": ["x -> x", "lambda x: x > 1", "(x, y) -> x + y", "x -> url"],
    "struct": ["{'a': 1}", "{'a': url, 'b': n}", "row(1, 2)", "events", "hits"],
    "map": ["MAP {'a': 1}", "MAP {1: url}", "map([1], [2])"],
    "blob": ["'a'::BLOB", "url::BLOB"],
}
TYPES = [
    "INTEGER",
    "VARCHAR",
    "DOUBLE",
    "DATE",
    "JSON",
    "VARCHAR[]",
    "STRUCT(a INT)",
    "DECIMAL(9, 2)",
    "UUID",
    "VARIANT",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "||", "=", "<>", "<", "LIKE", "~~", "->", "->>", "^@", "&", "<<"]


def kind_of(name: str) -> str:
    """Returns the kind of literals that fit a parameter of this type."""
    upper = name.upper()
    for kind, words in {
        "lambda": ["LAMBDA"],
        "list": ["[]", "LIST", "ARRAY"],
        "map": ["MAP"],
        "struct": ["STRUCT", "ROW", "UNION"],
        "interval": ["INTERVAL"],
        "time": ["DATE", "TIME"],
        "boolean": ["BOOL"],
        "blob": ["BLOB", "BIT"],
        "text": ["VARCHAR", "JSON", "ENUM", "UUID"],
        "number": ["INT", "DOUBLE", "FLOAT", "DECIMAL"],
    }.items():
        if any(word in upper for word in words):
            return kind
    return "any"


@dataclass(frozen=True)
class Function:
    """A function of DuckDB's with the kinds of its parameters."""

    name: str
    kinds: tuple[str, ...]
    table: bool
    aggregate: bool


def functions(connection: duckdb.DuckDBPyConnection) -> list[Function]:
    """Returns every function that DuckDB has, each of its forms once."""
    rows = connection.execute(
        "SELECT DISTINCT function_name, parameter_types, function_type FROM duckdb_functions() "
        "WHERE function_type <> 'pragma' AND function_name NOT LIKE 'icu_collate_%' ORDER BY ALL"
    ).fetchall()
    return [
        Function(name, tuple(kind_of(kind or "any") for kind in kinds), "table" in form, form == "aggregate")
        for name, kinds, form in rows
        if name[0].isalpha() or name[0] == "_"
    ]


@dataclass(frozen=True)
class Grammar:
    """What statements are made of: functions, those of them that are allowed, aggregates, and files by their paths."""

    scalars: Sequence[Function]
    allowed: Sequence[Function]
    aggregates: Sequence[Function]
    tables: Sequence[Function]
    paths: Sequence[str]

    def statements(self) -> st.SearchStrategy[str]:
        """Returns a strategy of whole statements."""

        # A true random number generator, once seeded, is much faster than a draw for each word.
        return st.randoms(use_true_random=True).map(lambda random: Writer(self, random).query(2))


class Writer:
    """Writes one statement, word by word: with many names and plain expressions, or the other way round."""

    def __init__(self, grammar: Grammar, random: Random) -> None:
        self.grammar, self.random = grammar, random
        self.names = self.chance(2)  # what it is about: names or functions
        self.ctes: list[str] = []  # the names of CTEs, in or out of scope

    def pick(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items)

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def name(self) -> str:
        """Returns a name of a table that there is or is not."""
        if self.ctes and not self.chance(3):
            name = str(self.pick(self.ctes))
            return name if self.chance(2) else self.spell(name.strip('"'))
        if self.names and self.chance(8):
            return self.spell(self.pick([*SYSTEM, *self.grammar.paths]))
        return str(self.pick(GIVEN))

    def spell(self, name: str) -> str:
        """Returns a name in one of the ways to write it."""
        forms = [f'"{name}"', f'"{name.upper()}"', f"'{name}'"]
        return str(
            self.pick([*forms, name, name.upper()] if name.replace("_", "").replace(".", "").isalpha() else forms)
        )

    def query(self, depth: int) -> str:
        """Returns a query, with a WITH, an order and a limit or without."""
        outer = list(self.ctes)
        ctes = f"{self.with_clause(depth)} " if depth > 1 and self.chance(2 if self.names else 8) else ""
        body = self.body(depth)
        if self.chance(5):
            body += f" ORDER BY {self.pick(['ALL', '1', self.expression(1)])}"
        if self.chance(5):
            body += f" LIMIT {self.pick(['1', '2', '10%', f'({self.column_query(0)})'])}"
        if self.chance(2):
            self.ctes = outer  # else they are used where they are not in scope
        return ctes + body

    def with_clause(self, depth: int) -> str:
        parts, kind = [], "WITH"
        for _ in range(self.random.randint(1, 2)):
            bare = str(self.pick([*ALIASES, *SYSTEM, *self.grammar.paths]))
            name = f'"{bare}"'
            hint = self.pick(["", "", "MATERIALIZED ", "NOT MATERIALIZED "])
            form = self.random.randint(0, 5)
            if form == 0:
                kind = "WITH RECURSIVE"
                first = self.pick(["SELECT 1", "SELECT 1", f"SELECT n FROM {name}"])
                parts.append(f"{name}(n) AS ({first} UNION ALL SELECT n + 1 FROM {name} WHERE n < 4)")
            elif form == 1:
                parts.append(f"{name} AS {hint}(FROM {self.spell(bare)})")
            elif form == 2:
                parts.append(f"{name}(n, url) AS {hint}(SELECT 1, '2')")
            else:
                parts.append(f"{name} AS {hint}({self.query(depth - 1)})")
            self.ctes.append(name)
        return f"{kind} {', '.join(parts)}"

    def body(self, depth: int) -> str:
        form = self.random.randint(0, 19)
        if form == 0:
            return f"VALUES ({self.expression(depth)}), ({self.expression(1)})"
        if form in (1, 2) and depth:
            operation = self.pick(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "UNION ALL BY NAME"])
            return f"({self.query(depth - 1)}) {operation} ({self.query(depth - 1)})"
        if form == 3:
            using = self.pick(["sum(n)", "count(*)", "first(url)"])
            return f"PIVOT {self.name()} ON {self.column()} IN (1, 2) USING {using}"
        if form == 4:
            return f"UNPIVOT {self.name()} ON {self.pick(['n', 'url', 'COLUMNS(*)', '_offset, _partition'])}"
        if form < 9 and self.names:
            return f"FROM {self.table(depth)}"
        text = f"SELECT {self.pick(['', '', 'DISTINCT '])}{self.item(depth)}"
        text += f"{', ' + self.item(depth) if self.chance(3) else ''} FROM {self.table(depth)}"
        if self.chance(3):
            text += f" WHERE {self.condition(depth)}"
        if self.chance(6):
            text += f" GROUP BY {self.pick(['ALL', 'ALL', 'url', 'ROLLUP (n, url)', self.expression(1)])}"
        if self.chance(20):
            text += self.pick([" HAVING count(*) > 1", " QUALIFY row_number() OVER () = 1", " USING SAMPLE 3 ROWS"])
        return text

    def item(self, depth: int) -> str:
        form = self.random.randint(0, 11)
        if form < (6 if self.names else 1):
            return "*"
        if form == 6:
            return str(self.pick(["COLUMNS('.*')", "* EXCLUDE (n)", "COLUMNS(c -> c LIKE 'h%')", "* LIKE '%i%'"]))
        if form == 7:
            return f"* REPLACE ({self.expression(1)} AS url)"
        if form == 8:
            return self.call(self.pick(self.grammar.aggregates), depth)
        return self.expression(depth) + str(self.pick(["", " AS a", " AS url"]))

    def column_query(self, depth: int) -> str:
        """Returns a query of one column, mostly."""
        if self.chance(6):
            return self.query(depth)
        item = self.pick(["n", "count(*)", "url", "sql"]) if self.names else self.expression(depth)
        where = f" WHERE {self.condition(depth)}" if self.chance(3) else ""
        return f"SELECT {item} FROM {self.table(depth)}{where} LIMIT {self.pick(['1', '3'])}"

    def table(self, depth: int) -> str:
        form = self.random.randint(0, 29) if depth and self.names else self.random.randint(10, 29)
        if form < 4:
            return f"({self.query(depth - 1)}) {self.pick(ALIASES)}"
        if form < 8:
            join = self.pick(["JOIN", "LEFT JOIN", "CROSS JOIN", "POSITIONAL JOIN", "SEMI JOIN", ",", "NATURAL JOIN"])
            on = " ON true" if join in ("JOIN", "LEFT JOIN", "SEMI JOIN") else ""
            if on and self.chance(3):
                on = f" USING ({self.pick(['n', 'url', 'hidden'])})"
            return f"{self.table(depth - 1)} {join} {self.table(depth - 1)}{on}"
        if form < 10:
            return f"{self.name()}, LATERAL ({self.query(depth - 1)}) {self.pick(ALIASES)}"
        if form == 10:
            return f"{self.call(self.pick(self.grammar.tables), depth)} {self.pick(ALIASES)}"
        if form == 11 and self.chance(4):
            return f"({self.pick(['DESCRIBE', 'SUMMARIZE', 'SHOW'])} {self.name()})"
        return self.name() + str(self.pick(["", "", "", "", " a", " b", " TABLESAMPLE 50%", " a(n, url)"]))

    def condition(self, depth: int) -> str:
        form = self.random.randint(0, 9)
        if form < 5:
            return str(self.pick(LITERALS["boolean"]))
        if form == 5:
            return f"EXISTS ({self.query(depth - 1)})" if depth else "true"
        if form == 6 and depth:
            return f"{self.column()} {self.pick(['IN', 'NOT IN', '= ANY', '> ALL'])} ({self.column_query(depth - 1)})"
        if form == 7:
            return f"CASE WHEN {self.pick(LITERALS['boolean'])} THEN true ELSE error(url) END"
        return f"{self.expression(depth)} IS NOT NULL"

    def column(self) -> str:
        return str(self.pick(OTHER_COLUMNS if self.chance(12) else COLUMNS))

    def expression(self, depth: int) -> str:
        form = self.random.randint(0, 15) if depth > 0 else 0
        if form < 3 or (self.names and form < 12):
            return self.column()
        if form < 10:
            return self.call(self.pick(self.grammar.scalars if form == 9 else self.grammar.allowed), depth)
        if form == 10:
            return f"{self.expression(depth - 1)} {self.pick(OPERATORS)} {self.expression(depth - 1)}"
        if form == 11:
            return f"{self.pick(['CAST', 'TRY_CAST'])}({self.expression(depth - 1)} AS {self.pick(TYPES)})"
        if form == 12:
            return f"list_transform([1, 2], x -> {self.expression(depth - 1)})"
        if form < 15:
            return f"{self.pick(['', 'ARRAY'])}({self.column_query(depth - 1)})"
        return str(self.pick(self.pick(list(LITERALS.values()))))

    def call(self, function: Function, depth: int) -> str:
        if len(function.kinds) == 1 and self.chance(6):
            return f"{self.pick(['url', 'n'])}.{function.name}()"
        arguments = [self.argument(function, kind, depth) for kind in function.kinds]
        spelled = self.pick(
            [function.name] * 3 + [function.name.upper(), f"main.{function.name}", f'"{function.name}"']
        )
        text = f"{spelled}({', '.join(arguments)})"
        if function.aggregate and self.chance(2):
            window = self.pick(["", "ORDER BY n", f"PARTITION BY {self.column()}", "ORDER BY url ROWS 1 PRECEDING"])
            text += f" OVER ({window})"
        return text

    def argument(self, function: Function, kind: str, depth: int) -> str:
        if function.name in GROWING:
            return str(self.pick(LITERALS["number"][:4] if kind in ("number", "any") else LITERALS[kind]))
        if kind not in LITERALS:
            kind = self.pick(["number", "text", "text", "list"])
        return self.expression(depth - 1) if self.chance(5) else str(self.pick(LITERALS[kind]))
