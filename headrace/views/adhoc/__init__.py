"""Ad-hoc SQL: read-only SELECTs over given tables, answered by DuckDB or Spark in processes of their own."""

from headrace.views.adhoc.duckdbengine import AdHoc
from headrace.views.adhoc.sqlrequest import Engine, JsonLimits, JsonResult, Limits, ParquetRows, SqlResult, Tables

__all__ = ["AdHoc", "Engine", "JsonLimits", "JsonResult", "Limits", "ParquetRows", "SqlResult", "Tables"]
