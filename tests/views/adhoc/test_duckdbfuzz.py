"""Statements of every kind against the sandbox of DuckDB: whatever runs touches only what the given tables show.

Canaries sit where a statement must not get: in a column that is not shown, in rows past the offsets, in a setting, a
variable, the environment, other files, the name of a file, and tables of other schemas. None may appear in an answer or
in an error.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from headrace.views.adhoc import duckdbsandbox
from headrace.views.adhoc.duckdbsandbox import Refused, check, open_tables
from tests.scale import FULL
from tests.views.adhoc.statements import Grammar, functions

HITS = pa.table({"url": ["1", "2", "3"], "n": [1, 2, 3]})
SHOWN = ["_partition", "_offset", "url", "n"]
WHERE = "(_partition = 0 AND _offset >= 0 AND _offset < 3) OR (_partition = 1 AND _offset >= 0 AND _offset < 3)"
SCANS = {"ARROW_SCAN", "READ_PARQUET", "RANGE", "GENERATE_SERIES", "UNNEST", "JSON_EACH", "JSON_TREE"}


def events(place: str) -> pa.Table:
    """Rows whose values numbers and JSON can be made of, and after the third offset rows of which they cannot."""
    offsets = [row // 2 for row in range(40)]
    return pa.table(
        {
            "_partition": pa.array([row % 2 for row in range(40)], pa.int32()),
            "_offset": offsets,
            "url": [str(offset) if offset < 3 else f"canary-row-{place}" for offset in offsets],
            "n": [offset if offset < 3 else 777_777 for offset in offsets],
            "hidden": ["canary-column"] * 40,
        }
    )


class Sandbox:
    """A sandbox with canaries around it."""

    def __init__(self, folder: Path) -> None:
        files = [folder / "known.parquet", folder / "canary-path.parquet"]
        for file in files:
            pq.write_table(events(file.stem), file)
        pq.write_table(pa.table({"url": ["canary-file"]}), folder / "other.parquet")
        (folder / "other.csv").write_text("url\ncanary-file\n")
        known = str(files[0])
        self.paths = [
            *[known, f"file:{known}", known.upper(), f"{folder}/*.parquet", str(folder), f"{folder}/./known.parquet"],
            *[f"{folder}/other.parquet", f"{folder}/other.csv", "known.parquet", "/etc/passwd", "/proc/self/environ"],
        ]
        self.connection = open_tables(
            {"hits": HITS},
            {"events": {"paths": [str(file) for file in files], "columns": SHOWN, "zoned": [], "where": WHERE}},
            256,
        )
        self.connection.execute("SET VARIABLE x = 'canary-variable'")
        self.connection.execute("CREATE SCHEMA other")
        for table in ("other.secrets", "main.secrets"):
            self.connection.execute(f"CREATE TABLE {table} AS SELECT 'canary-table' AS url, 777777 AS n")
        there = functions(self.connection)
        scalars = [one for one in there if not one.table]
        allowed = [one for one in scalars if one.name.lower() in duckdbsandbox._FUNCTIONS]
        self.grammar = Grammar(
            scalars=scalars,
            allowed=[one for one in allowed if not one.aggregate],
            aggregates=[one for one in allowed if one.aggregate],
            tables=[one for one in there if one.table],
            paths=self.paths,
        )

    def run(self, sql: str) -> tuple[str, list[dict[str, Any]]]:
        """Returns all that a statement says, and the scans of the plan that runs; none if it is refused."""
        scans: list[dict[str, Any]] = []
        try:
            statement = check(self.connection, sql, {"hits", "events"})
            plans = dict(self.connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall())
            scans += [node for node in nodes(json.loads(plans["physical_plan"])) if "Function" in node["extra_info"]]
            with interrupted_after(self.connection, 5):
                found = self.connection.execute(statement)
                return f"{[column[0] for column in found.description]} {found.fetchmany(100)}", scans
        except (Refused, duckdb.Error, ValueError, OverflowError) as error:  # the latter: Python has no such date
            return str(error), scans


def nodes(plan: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in plan:
        yield node
        yield from nodes(node["children"])


def columns_of(scan: dict[str, Any]) -> set[str]:
    """Returns the columns that a scan of a table reads: a list, or one, or an empty text."""
    if scan["name"].strip() not in ("ARROW_SCAN", "READ_PARQUET"):
        return set()
    read = scan["extra_info"].get("Projections", [])
    return {read} - {""} if isinstance(read, str) else set(read)


@contextmanager
def interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HEADRACE_SECRET", "canary-environment")
        patched.setitem(duckdbsandbox._CONFIGURATION, "custom_user_agent", "canary-setting")
        patched.chdir(tmp_path_factory.mktemp("master"))
        opened = Sandbox(Path(os.getcwd()))
        with opened.connection:
            yield opened


@pytest.mark.slow("10,000 statements")
def test_whatever_runs_touches_only_what_is_shown(sandbox: Sandbox) -> None:
    count = {"run": 0, "all": 0}

    @settings(max_examples=10_000 if FULL else 200)
    @given(sandbox.grammar.statements())
    def attack(sql: str) -> None:
        said, scans = sandbox.run(sql)
        assert "canary" not in said, sql
        assert "777777" not in said, sql
        for scan in scans:
            assert scan["name"].strip() in SCANS, sql
            assert columns_of(scan) <= set(SHOWN), sql
        count["all"] += 1
        count["run"] += bool(scans)

    attack()
    assert count["run"] > count["all"] / 10, count  # of which some must run, or nothing has been tried
