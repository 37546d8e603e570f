"""Rows that an expression fails on, and functions of Python: the row is left out and counted, and no view stops."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlfunctions import SqlFunction, SqlFunctions, load_functions
from headrace.dialects.sql.sqlsession import SqlSession
from headrace.log.topics import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = """CREATE STREAM s (k text, a bigint, b bigint, t text) WITH (partitions = 2);
    CREATE STREAM said (k text, word text)"""
VIEWS = """
    CREATE VIEW quotients AS SELECT k, a / b AS q FROM s;
    CREATE VIEW numbers AS SELECT CAST(t AS INT) AS n, count(*) AS c FROM s GROUP BY 1;
    CREATE VIEW ratios AS SELECT k, sum(a) / sum(b) AS r FROM s GROUP BY k;
    CREATE VIEW shared AS SELECT k, sum(a div b) AS d FROM s WHERE a > 0 GROUP BY k;
    CREATE VIEW every AS SELECT count(*) AS n FROM s;
    CREATE VIEW halves AS SELECT k, half(a) AS h, plus_one(half(a)) AS p, doubled(b) AS d FROM s;
    CREATE TRANSFORM talk INTO said AS SELECT upper(k) AS k, words(t) AS word FROM s WHERE k IS NOT NULL
"""


@hr.sql_function("bigint")
def half(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@hr.sql_function("bigint", vectorized=True)
def plus_one(numbers: pa.Array) -> pa.Array:
    return pc.add(numbers, 1)


@hr.sql_function("bigint", vectorized=True)
def doubled(numbers: pa.Array) -> pa.Array:
    if 7 in numbers.to_pylist():
        raise ValueError("seven")
    return pc.multiply(numbers, 2)


@hr.sql_function("string", rows=True)
def words(text: str) -> list[str]:
    return text.split()


def counts(session: SqlSession) -> dict[str, int]:
    shown = [session.execute(f"SHOW {kind}")[0].table for kind in ("VIEWS", "TRANSFORMS")]
    rows = [tuple(row.values()) for table in shown if table is not None for row in table.to_pylist()]
    return {row[0]: row[-1] for row in rows if row[-1]}


@pytest.mark.slow("streams are started a dozen times")
def test_a_row_that_fails_is_left_out_and_counted_and_stops_nothing(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "home"
    functions = [half, plus_one, doubled, words]

    def rows(query: str) -> list[Any]:
        with closing(sqlite3.connect(home / "views.db")) as client:
            return client.execute(query).fetchall()

    with SqlSession(str(home), spark=spark, functions=functions) as session:
        session.execute(STREAMS + ";" + VIEWS)
        session.execute("INSERT INTO s VALUES ('x', 4, 2, '12 x'), ('y', 6, 3, '7'), (NULL, NULL, NULL, NULL)")
        session.catch_up(600)
        session.execute("INSERT INTO s VALUES ('x', 3, 0, 'one two'), ('z', 8, 0, '7'), ('z', 2, 7, '')")
        session.catch_up(600)
        assert rows("SELECT * FROM every") == [(6,)]
        assert rows("SELECT * FROM quotients ORDER BY k NULLS FIRST, q") == [
            (None, None),
            ("x", 2.0),
            ("y", 2.0),
            ("z", 2 / 7),
        ]
        assert rows("SELECT * FROM numbers ORDER BY n") == [(None, 1), (7, 2)]
        assert rows("SELECT * FROM ratios ORDER BY k NULLS FIRST") == [
            (None, None),
            ("x", 3.5),
            ("y", 2.0),
            ("z", 10 / 7),
        ]
        assert rows("SELECT * FROM shared ORDER BY k") == [("x", 2), ("y", 2), ("z", 0)]
        # Of the odd one half fails, of the null one Python cannot take the remainder, and of 7 there is no double.
        assert rows("SELECT * FROM halves ORDER BY k") == [("x", 2, 3, 4), ("y", 3, 4, 6), ("z", 4, 5, 0)]
        said = sorted(tuple(record.value.values()) for record in Log(home / "log").topic("said").read(0))
        assert said == [("X", "12"), ("X", "one"), ("X", "two"), ("X", "x"), ("Y", "7"), ("Z", "7")]
        expected = {"quotients": 2, "numbers": 3, "shared": 2, "halves": 3}
        assert counts(session) == expected
        bad = {label: each for handle in session.passes().values() for label, each in handle.status().bad.items()}
        assert {reason for each in bad.values() for reason in each.counts} == {"failed expression"}
        assert any(each.last is not None and '"k":"z"' in each.last.element for each in bad.values())
        session.execute("DROP VIEW every")  # the counts outlive a restart of the pass
        session.execute("INSERT INTO s VALUES ('q', 1, 0, '1')")
        session.catch_up(600)
        # A group whose result fails keeps none, or its last one.
        assert counts(session) == expected | {"quotients": 3, "shared": 3, "halves": 4, "ratios": 1}
        assert rows("SELECT k FROM ratios WHERE k = 'q'") == []
        with pytest.raises(SqlError, match=r"halve|routine|function"):
            session.execute("CREATE VIEW unknown AS SELECT halve(a) AS h FROM s")


def test_names_of_functions_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text(
        "import headrace as hr\n@hr.sql_function('double', name='Tax')\ndef tax(price):\n    return price * 0.2\n"
    )
    (tax,) = load_functions(file)
    assert tax(10.0) == 2.0 and list(SqlFunctions.of([tax]).by_name) == ["tax"]
    file.write_text("x = 1")
    for reason, cause in {
        "defines no function for queries": lambda: load_functions(file),
        "is a name of SQL's own": lambda: SqlFunctions.of([SqlFunction("upper", str.upper, "string")]),
        "two functions are called 'f'": lambda: SqlFunctions.of([SqlFunction(name, abs, "int") for name in "fF"]),
        "is no function for queries": lambda: SqlFunctions.of([len]),  # type: ignore[list-item]
    }.items():
        with pytest.raises(SqlError, match=reason):
            cause()
    file.write_text("1 / 0")
    with pytest.raises(SqlError, match="cannot be run: ZeroDivisionError"):
        load_functions(file)
