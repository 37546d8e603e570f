"""The inner side of ad-hoc SQL: a process of its own that runs one statement on DuckDB, prints the result and ends.

Three walls, each enough for most attacks: the statement's syntax tree, as DuckDB's own parser gives it, may hold
nothing but queries of the given tables; DuckDB is configured to touch nothing else, and the configuration is locked;
and the operating system lets this process write no file and use no more memory. `adhoc` starts it and kills it in time.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, BinaryIO, Final

import duckdb
import pyarrow as pa

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
    "python_enable_replacements": "false",  # variables of this process are no tables
    "temp_directory": "",
    "threads": "1",
}


class Refused(Exception):
    """The statement may not run."""


def answer(source: BinaryIO) -> bytes:
    """What one request gets: a line of JSON, and if all went well the rows as an Arrow stream."""
    request = json.loads(source.readline())
    limits = request["limits"]
    arrow = {name: pa.ipc.open_stream(source.read(size)).read_all() for name, size in request["arrow"].items()}
    connection = opened(arrow, request["parquet"], limits["megabytes"])
    _limit(limits["megabytes"])
    try:
        check(connection, request["sql"], {*arrow, *request["parquet"]})
        return _run(connection, request["sql"], limits["rows"], limits["megabytes"])
    except Refused as error:
        return _line(error=str(error))
    except (MemoryError, duckdb.OutOfMemoryException):
        return _line(error=f"the statement needs more than {limits['megabytes']} MB of memory; ask for less at once")
    except duckdb.Error as error:
        return _line(error=str(error).partition("\n\nLINE")[0])


def opened(arrow: dict[str, pa.Table], parquet: dict[str, dict[str, Any]], megabytes: int) -> duckdb.DuckDBPyConnection:
    """DuckDB with these tables and rows of files, and with access to nothing else."""
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
        listed, where = ", ".join(map(_quoted, files["paths"])), f" WHERE {files['where']}" if files["where"] else ""
        read = f"read_parquet([{listed}], hive_partitioning=false)"
        connection.execute(f'CREATE VIEW "{name}" AS SELECT {columns} FROM {read}{where}')
    connection.execute("SET lock_configuration=true")
    return connection


def check(connection: duckdb.DuckDBPyConnection, sql: str, tables: set[str]) -> None:
    """Refuses all but one query of these tables."""
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
    found = []
    rest: list[Any] = [tree["statements"]]
    while rest:  # no recursion, which a deep statement would exhaust
        each = rest.pop()
        if isinstance(each, dict):
            found.append(each)
            rest += each.values()
            named |= {entry["key"] for entry in each.get("cte_map", {}).get("map", [])}
            if each.get("type") in ("RECURSIVE_CTE_NODE", "CTE_NODE"):
                named.add(each["cte_name"])
        elif isinstance(each, list):
            rest += each
    if hidden := named & system:
        raise Refused(f"{sorted(hidden)[0]!r} is the name of a system table; choose another")
    allowed = {name.lower() for name in tables | named}
    for each in found:
        _check_node(each, allowed, tables)


def _check_node(node: dict[str, Any], allowed: set[str], tables: set[str]) -> None:
    kind = node.get("type")
    if node.get("function_name", "").lower() in _REFUSED_FUNCTIONS:
        raise Refused(f"the function {node['function_name']} is not for ad-hoc SQL")
    if not isinstance(kind, str) or "class" in node or "id" in node:
        return  # an expression, or the type of a value
    if kind not in _NODES | _MODIFIERS | _ORDERS | _FROM and not kind.endswith("_TYPE_INFO"):
        raise Refused(f"{kind} is not for ad-hoc SQL; write SELECT ... FROM one of {', '.join(sorted(tables))}")
    if kind == "TABLE_FUNCTION" and (name := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS:
        raise Refused(f"the function {name} is not for ad-hoc SQL; those that give tables are range and unnest")
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
    """No file to write to, and so much memory more than what is used already."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as statistics:
        data = int(statistics.read().split()[5]) * resource.getpagesize()
    limit = data + 2 * megabytes * _MEGABYTE  # DuckDB keeps to its own limit; what it does not count must fit beside it
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _line(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(_line(ready=True))
    sys.stdout.buffer.flush()
    sys.stdout.buffer.write(answer(sys.stdin.buffer))
