"""The sandbox process of ad-hoc SQL on DuckDB: runs one statement, prints the result and ends.

Three walls, each enough for most attacks: the statement's syntax tree, as DuckDB's own parser returns it, may have
nothing but queries of the given tables; DuckDB is configured to access nothing else, and the configuration is locked;
and the operating system lets this process write no file and use no more memory. `duckdbengine` starts and kills it.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import duckdb
import pyarrow as pa

if TYPE_CHECKING:  # importing Headrace would double the time in which this process starts
    from headrace.views.adhoc.sqlrequest import ParquetTable, RequestHead

_MEGABYTE: Final = 1 << 20

_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_MODIFIERS: Final = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS: Final = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING"})
_FROM: Final = frozenset({"BASE_TABLE", "JOIN", "SUBQUERY", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT"})
_TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest"})
_REFUSED_FUNCTIONS: Final = frozenset({"current_setting", "getvariable", "getenv", "write_log", "nextval", "currval"})

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
        check(connection, request["sql"], {*arrow, *request["parquet"]})
        return _run(connection, request["sql"], limits["rows"], limits["megabytes"])
    except Refused as error:
        return _line(error=str(error))
    except (MemoryError, duckdb.OutOfMemoryException):
        return _line(error=f"the statement needs more than {limits['megabytes']} MB of memory; query less at once")
    except duckdb.Error as error:
        return _line(error=str(error).partition("\n\nLINE")[0])


def open_tables(
    arrow: Mapping[str, pa.Table], parquet: Mapping[str, ParquetTable], megabytes: int
) -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB with these tables and files, and with access to nothing else."""
    connection = duckdb.connect(":memory:", config={**_CONFIGURATION, "memory_limit": f"{megabytes}MB"})
    connection.execute("SET TimeZone='UTC'")
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


def check(connection: duckdb.DuckDBPyConnection, sql: str, tables: set[str]) -> None:
    """Refuses a statement that is not one query of these tables."""
    try:
        kinds = [statement.type for statement in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise Refused(str(error).partition("\n\nLINE")[0]) from None
    if len(kinds) != 1:
        raise Refused(f"one statement is run at a time, got {len(kinds)}")
    (row,) = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(row[0])
    if kinds[0] != duckdb.StatementType.SELECT or tree["error"]:
        raise Refused("only SELECT is run")
    internal = connection.execute("SELECT view_name FROM duckdb_views() WHERE internal").fetchall()
    system = {name for (name,) in internal}
    named = set()
    nodes = []
    rest: list[Any] = [tree["statements"]]
    while rest:  # no recursion, which a deep statement would exhaust
        node = rest.pop()
        if isinstance(node, dict):
            nodes.append(node)
            rest += node.values()
            named |= {entry["key"] for entry in node.get("cte_map", {}).get("map", [])}
            if node.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
                named.add(node["cte_name"])
        elif isinstance(node, list):
            rest += node
    if hidden := named & system:
        raise Refused(f"{sorted(hidden)[0]!r} is the name of a system table; choose another")
    allowed = {name.lower() for name in tables | named}
    for node in nodes:
        _check_node(node, allowed, tables)


def _check_node(node: dict[str, Any], allowed: set[str], tables: set[str]) -> None:
    kind = node.get("type")
    if node.get("function_name", "").lower() in _REFUSED_FUNCTIONS:
        raise Refused(f"the function {node['function_name']} is not allowed in ad-hoc SQL")
    if not isinstance(kind, str) or "class" in node or "id" in node:
        return  # an expression, or the type of a value
    if kind not in _NODES | _MODIFIERS | _ORDERS | _FROM and not kind.endswith("_TYPE_INFO"):
        raise Refused(f"{kind} is not allowed in ad-hoc SQL; write SELECT ... FROM one of {', '.join(sorted(tables))}")
    if kind == "TABLE_FUNCTION" and (name := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS:
        raise Refused(f"the function {name} is not allowed in ad-hoc SQL; table functions are range and unnest")
    if kind == "BASE_TABLE":
        name = ".".join(filter(None, (node["catalog_name"], node["schema_name"], node["table_name"])))
        if name.lower() not in allowed:
            raise Refused(f"there is no table {name!r}; there are {', '.join(sorted(tables))}")


def _run(connection: duckdb.DuckDBPyConnection, sql: str, most: int, megabytes: int) -> bytes:
    reader = connection.execute(sql).fetch_record_batch(min(most + 1, 10_000))
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
