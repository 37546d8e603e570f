"""Tables of data lakes for tests, of both formats: their sinks and sources, and what others read in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import headrace as hr
from headrace.edges.deltatables import DeltaLakeTable
from headrace.edges.icebergtables import IcebergLakeTable
from headrace.edges.lakes import LakeTable

FORMATS = ("delta", "iceberg")


class Lake:
    """A lake in a directory, of one format."""

    def __init__(self, format: str, folder: Path) -> None:
        self.format, self.folder = format, folder
        folder.mkdir(exist_ok=True)
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
        }

    def sink(self, name: str = "things", **options: Any) -> Any:
        if self.format == "delta":
            return hr.WriteDelta(str(self.folder / name), **options)
        return hr.WriteIceberg(f"shop.{name}", catalog=self.catalog, **options)

    def source(self, name: str = "things", **options: Any) -> Any:
        if self.format == "delta":
            return hr.ReadDelta(str(self.folder / name), **options)
        return hr.ReadIceberg(f"shop.{name}", catalog=self.catalog, **options)

    def create(self, columns: pa.Schema, name: str = "things") -> LakeTable:
        if self.format == "delta":
            return DeltaLakeTable.create(str(self.folder / name), {}, columns)
        return IcebergLakeTable.create(f"shop.{name}", self.catalog, columns)

    def find(self, name: str = "things") -> Any:
        """The table as the engine opens it."""
        if self.format == "delta":
            return DeltaLakeTable.find(str(self.folder / name), {})
        return IcebergLakeTable.find(f"shop.{name}", self.catalog)

    def library(self, name: str = "things") -> Any:
        """The table as the format's own library opens it."""
        if self.format == "delta":
            from deltalake import DeltaTable

            return DeltaTable(str(self.folder / name))
        from pyiceberg.catalog import load_catalog

        return load_catalog(**self.catalog).load_table(f"shop.{name}")

    def table(self, name: str = "things") -> pa.Table:
        """The rows, as the format's own library reads them."""
        table = self.library(name)
        return table.to_pyarrow_table() if self.format == "delta" else table.scan().to_arrow()

    def rows(self, name: str = "things") -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, (row.values() for row in self.table(name).to_pylist())))

    def rows_in_duckdb(self, name: str = "things") -> Counter[tuple[Any, ...]]:
        return Counter(self.in_duckdb(name))

    def in_duckdb(self, name: str = "things") -> list[tuple[Any, ...]]:
        """The rows, as DuckDB reads the table's data files."""
        table = self.library(name)
        with duckdb.connect() as connection:
            if self.format == "delta":
                connection.register("things", table.to_pyarrow_dataset())
            else:
                table.scan().to_duckdb("things", connection)
            return connection.execute("SELECT * FROM things").fetchall()

    def commits(self, name: str = "things") -> list[dict[str, Any]]:
        """What commits that changed rows say of themselves, the oldest first."""
        table = self.library(name)
        if self.format == "delta":
            return [commit for commit in reversed(table.history()) if "headrace" in commit]
        return [dict(snapshot.summary.additional_properties) for snapshot in table.snapshots()]
