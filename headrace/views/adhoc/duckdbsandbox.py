"""The sandbox process of ad-hoc SQL on DuckDB: runs one statement, prints the result and ends.

Four walls, each enough for most attacks: the statement's syntax tree, as DuckDB's own parser returns it, may have
nothing but queries of the given tables and of CTEs in scope, and functions of a list (`duckdbfunctions.toml`); its plan
may read nothing but these tables; DuckDB is configured to access nothing else, and the configuration is locked; and the
operating system lets this process write no file and use no more memory. `duckdbengine` starts and kills it.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import tomllib
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import duckdb
import pyarrow as pa

if TYPE_CHECKING:  # importing Headrace would double the time in which this process starts
    from headrace.views.adhoc.sqlrequest import JsonLimits, ParquetTable, RequestHead


def _load(path: Path) -> Any:
    """Loads a module of Headrace by its file, and nothing else of Headrace."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_jsontext: Final = _load(Path(__file__).parents[2] / "model" / "jsontext.py")

_MEGABYTE: Final = 1 << 20

_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_MODIFIERS: Final = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS: Final = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING"})
_FROM: Final = frozenset({"BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT"})
_KINDS: Final = _NODES | _MODIFIERS | _ORDERS | _FROM
_EXPRESSIONS: Final = frozenset(
    {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA"}
    | {"OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW"}
)
# The fields in which a node's own CTE is in scope.
_RECURSION: Final = {"RECURSIVE_CTE_NODE": "right", "CTE_NODE": "child"}
# Parts of a tree that have no kind, by their fields.
_PARTS: Final = frozenset(
    frozenset(fields.split())
    for fields in (
        "node named_param_map",
        "map",
        "key value",
        "aliases query materialized key_targets",
        "when_expr then_expr",
        "pivot_expressions unpivot_names entries pivot_enum",
        "values star_expr",
        "sample_size is_percentage method seed",
        "catalog schema table column",
        "first second",
    )
)
# The leaves of a plan: what reads tables, and what makes rows.
_READ: Final = frozenset({"ARROW_SCAN", "READ_PARQUET"})
_MADE: Final = frozenset(
    {"COLUMN_DATA_SCAN", "CTE_SCAN", "DUMMY_SCAN", "EMPTY_RESULT", "EXPRESSION_SCAN"}
    | {"GENERATE_SERIES", "JSON_EACH", "JSON_TREE", "RANGE", "UNNEST"}
)

with Path(__file__).with_name("duckdbfunctions.toml").open("rb") as _file:
    _LISTS: Final = tomllib.load(_file)
_TABLE_FUNCTIONS: Final = frozenset(_LISTS["tables"]["allowed"].split())
_FUNCTIONS: Final = _TABLE_FUNCTIONS.union(*(names.split() for names in _LISTS["allowed"].values()))
_TYPES: Final = frozenset(_LISTS["types"]["allowed"].split())

_CONFIGURATION: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",  # variables of this process are not tables
    "temp_directory": "",
    "threads": "1",
}


class Refused(Exception):
    """The statement is not allowed."""


def answer(source: BinaryIO) -> bytes:
    """Answers one request: a line of JSON, and after success the rows as an Arrow stream."""
    request: RequestHead = json.loads(source.readline())
    limits = request["limits"]
    arrow = {name: pa.ipc.open_stream(source.read(size)).read_all() for name, size in request["arrow"].items()}
    connection = open_tables(arrow, request["parquet"], limits["megabytes"])
    _limit(limits["megabytes"])
    try:
        statement = check(connection, request["sql"], {*arrow, *request["parquet"]})
        if request["json"] is not None:
            return _run_json(connection, statement, limits["rows"], request["json"])
        return _run(connection, statement, limits["rows"], limits["megabytes"])
    except (Refused, _jsontext.TooLarge) as error:
        return _line(error=str(error))
    except (MemoryError, duckdb.OutOfMemoryException):
        return _line(error=f"the statement needs more than {limits['megabytes']} MB of memory; query less at once")
    except duckdb.Error as error:
        return _line(error=str(error).partition("\n\nLINE")[0])
    except (RecursionError, pa.ArrowException):
        return _line(error="the statement or its result is nested too deeply; nest it less")


def open_tables(
    arrow: Mapping[str, pa.Table], parquet: Mapping[str, ParquetTable], megabytes: int
) -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB with these tables and files, and with access to nothing else."""
    connection = duckdb.connect(":memory:", config={**_CONFIGURATION, "memory_limit": f"{megabytes}MB"})
    connection.execute("SET TimeZone='UTC'")
    connection.execute("SET explain_output='all'")  # for the check of plans
    for name, table in arrow.items():
        connection.register(name, table)
    paths = [path for files in parquet.values() for path in files["paths"]]
    connection.execute(f"SET allowed_paths=[{', '.join(map(_quoted, paths))}]")
    connection.execute("SET enable_external_access=false")
    for name, files in parquet.items():
        zoned = {column: f'"{column}"::TIMESTAMPTZ AS "{column}"' for column in files["zoned"]}
        columns = ", ".join(zoned.get(column, f'"{column}"') for column in files["columns"]) or "*"
        where = f" WHERE {files['where']}" if files["where"] else ""
        read = f"read_parquet([{', '.join(map(_quoted, files['paths']))}], hive_partitioning=false)"
        connection.execute(f'CREATE VIEW "{name}" AS SELECT {columns} FROM {read}{where}')
    connection.execute("SET lock_configuration=true")
    return connection


def check(connection: duckdb.DuckDBPyConnection, sql: str, tables: set[str]) -> duckdb.Statement:
    """Returns the statement that may be run; refuses one that is not a query of these tables only."""
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise Refused("a statement is text: leave out NUL, where it would end, and halves of surrogate pairs")
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise Refused(str(error).partition("\n\nLINE")[0]) from None
    if len(statements) != 1:
        raise Refused(f"one statement is run at a time, got {len(statements)}")
    (row,) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(row[0])
    if tree["error"] and tree["error_type"] == "serialization":
        raise Refused(f"the statement cannot be checked: {tree['error_message']}; write it differently")
    if statements[0].type != duckdb.StatementType.SELECT or tree["error"]:
        raise Refused("only SELECT is run")
    _check_tree(tree["statements"], tables)
    _check_plan(connection, sql)
    return statements[0]


def _check_tree(tree: Any, tables: set[str]) -> None:
    """Checks each node of a syntax tree, with the names of the tables and CTEs that are in scope there."""
    rest: list[tuple[Any, frozenset[str]]] = [(tree, frozenset(map(_lower, tables)))]
    while rest:  # no recursion, which a deep statement would exhaust
        node, scope = rest.pop()
        if isinstance(node, list):
            rest += [(item, scope) for item in node]
        elif isinstance(node, dict) and "is_null" not in node:  # which only values have
            _check_node(node, scope, tables)
            for entry in node.get("cte_map", {}).get("map", []):  # a CTE sees those before it, and not itself
                rest.append((entry["value"], scope))
                scope |= {_lower(entry["key"])}
            for field, value in node.items():
                if field == _RECURSION.get(node.get("type", "")):
                    rest.append((value, scope | {_lower(node["cte_name"])}))
                elif field != "cte_map":
                    rest.append((value, scope))


def _check_node(node: dict[str, Any], scope: frozenset[str], tables: set[str]) -> None:
    kind = node.get("class") or node.get("type")
    if "class" in node:
        if kind not in _EXPRESSIONS:
            raise Refused(f"{kind} is not allowed in ad-hoc SQL; write values and columns")
        if kind in ("FUNCTION", "WINDOW"):
            _check_function(node)
    elif "id" in node:
        _check_type(node["type_info"] or {})
    elif kind is None:
        if node.keys() - {"alias"} not in _PARTS:
            raise Refused(f"a part of the statement is not allowed in ad-hoc SQL: {', '.join(node)}")
    elif kind not in _KINDS and not kind.endswith("_TYPE_INFO"):
        raise Refused(f"{kind} is not allowed in ad-hoc SQL; write SELECT ... FROM one of {', '.join(sorted(tables))}")
    elif kind == "TABLE_FUNCTION":
        if (name := _lower(node["function"]["function_name"])) not in _TABLE_FUNCTIONS:
            listed = ", ".join(sorted(_TABLE_FUNCTIONS))
            raise Refused(f"the function {name} is not allowed in ad-hoc SQL; table functions are {listed}")
    elif kind == "BASE_TABLE":
        _check_table(node, scope, tables)


def _check_table(node: dict[str, Any], scope: frozenset[str], tables: set[str]) -> None:
    name = ".".join(filter(None, (node["catalog_name"], node["schema_name"], node["table_name"])))
    if node["catalog_name"] or node["schema_name"] or _lower(name) not in scope:
        raise Refused(f"there is no table {name!r}; there are {', '.join(sorted(tables))}")
    if node["at_clause"]:
        raise Refused(f"the table {name!r} has no versions in SQL; leave out AT")


def _check_function(node: dict[str, Any]) -> None:
    # What is written before the name may be a column, as in url.upper(): a name is allowed wherever it stands.
    if (name := _lower(node["function_name"])) not in _FUNCTIONS:
        raise Refused(f"the function {name} is not allowed in ad-hoc SQL")
    if node.get("export_state"):
        raise Refused("EXPORT_STATE is not allowed in ad-hoc SQL")


def _check_type(info: dict[str, Any]) -> None:
    if info.get("type") == "UNBOUND_TYPE_INFO" and (
        info["catalog"] or info["schema"] or _lower(info["name"]) not in _TYPES
    ):
        raise Refused(f"there is no type {info['name']!r} in ad-hoc SQL")


def _check_plan(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuses a statement whose plan, as it is before DuckDB folds what it knows, reads more than the given tables.

    These are read by the function read_parquet; the scan of a file that a statement names by its path has another name.
    """
    plans = dict(connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall())
    rest = json.loads(plans["logical_plan"])
    while rest:
        node = rest.pop()
        rest += node["children"]
        if not node["children"] and (name := node["name"].strip()) not in _READ | _MADE:
            raise Refused(f"{name} is not allowed in ad-hoc SQL; a statement reads only its tables")


def _lower(name: str) -> str:
    """Returns a name as DuckDB compares it: letters beyond ASCII stay as they are."""
    return name.encode().lower().decode()


def _run(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, most: int, megabytes: int) -> bytes:
    reader = connection.execute(statement).fetch_record_batch(min(most + 1, 10_000))
    batches, rows, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if size > megabytes * _MEGABYTE:
            raise MemoryError
        if rows > most:
            break
    table = pa.Table.from_batches(batches, reader.schema).slice(0, most)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _line(truncated=rows > most) + bytes(sink.getvalue())


def _run_json(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, most: int, limits: JsonLimits
) -> bytes:
    reader = connection.execute(statement).fetch_record_batch(min(most + 1, 2_048))
    rows = (row for batch in reader for row in _jsontext.rows_of(batch, limits["cells"]))
    pieces = _jsontext.encode_pieces(islice(rows, most), cells=limits["cells"], size=limits["bytes"])
    head = _line(columns=reader.schema.names, truncated=next(rows, None) is not None)
    return b"".join([head, *pieces])


def _limit(megabytes: int) -> None:
    """Forbids this process to write files, and to use more than so much memory beyond what it uses now."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as statistics:
        data = int(statistics.read().split()[5]) * resource.getpagesize()
    limit = data + 2 * megabytes * _MEGABYTE  # DuckDB observes its own limit; what it does not count must fit beside it
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(_line(ready=True))
    sys.stdout.buffer.flush()
    sys.stdout.buffer.write(answer(sys.stdin.buffer))
