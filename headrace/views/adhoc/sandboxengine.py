"""The base class of engines for ad-hoc SQL: a request goes to a sandbox process, and its reply has a head and rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, ClassVar, Self

import pyarrow as pa

from headrace.views.adhoc.sqlrequest import Dialect, JsonLimits, JsonResult, Limits, SqlResult, Tables, encode_request


class SandboxEngine(ABC):
    """Runs statements, one SELECT each, in a sandbox process."""

    dialect: ClassVar[Dialect]
    limits: Limits

    def query(self, sql: str, tables: Tables) -> SqlResult:
        """Runs one SELECT over these tables."""
        reply, rows = self._ask(encode_request(sql, tables, self.limits, self.dialect))
        return SqlResult(pa.ipc.open_stream(rows).read_all(), reply["truncated"])

    def query_json(self, sql: str, tables: Tables, limits: JsonLimits) -> JsonResult:
        """Runs one SELECT over these tables; encodes the result in the process that runs it."""
        reply, rows = self._ask(encode_request(sql, tables, self.limits, self.dialect, limits))
        return JsonResult(reply["columns"], rows, reply["truncated"])

    @abstractmethod
    def _ask(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        """Sends a request to a process; returns the head of its reply and the rows."""

    @abstractmethod
    def close(self) -> None:
        """Ends its processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
