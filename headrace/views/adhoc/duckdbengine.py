"""Ad-hoc SQL on DuckDB: read-only queries of given tables, whatever the statement tries.

Each statement runs in a process of its own (see `duckdbsandbox`): DuckDB's own limits do not hold for every function,
and a process can be killed. One is started ahead, so that nobody waits for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from headrace.views.adhoc.sandboxengine import SandboxEngine
from headrace.views.adhoc.sqlrequest import DUCKDB, Limits, SqlResult, Tables
from headrace.views.errors import ViewError

__all__ = ["AdHoc", "Limits", "SqlResult", "Tables"]

_SANDBOX: Final = Path(__file__).with_name("duckdbsandbox.py")


class AdHoc(SandboxEngine):
    """Runs statements, one SELECT each, within limits. Safe for any number of threads.

    >>> import pyarrow as pa
    >>> hits = pa.table({"url": ["foo.com", "oof.com"], "n": [3, 4]})
    >>> with AdHoc() as adhoc:
    ...     adhoc.query("SELECT max(n) AS n FROM hits WHERE url LIKE 'foo%'", {"hits": hits}).table.to_pylist()
    [{'n': 3}]
    >>> with AdHoc() as adhoc:
    ...     adhoc.query("SELECT * FROM read_csv('/etc/passwd')", {"hits": hits})
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: the function read_csv is not allowed in ad-hoc SQL; table functions are \
generate_series, json_each, json_tree, range, unnest
    """

    dialect = DUCKDB

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._spare: subprocess.Popen[bytes] | None = _start()

    def _ask(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        """Sends a request to a process; returns the head of its reply and the rows."""
        with self._lock:
            process, self._spare = self._spare or _start(), _start()
        with process:
            try:
                assert process.stdout is not None
                process.stdout.readline()  # ready: its time counts from here on
                output, _ = process.communicate(request, timeout=self.limits.seconds)
            except subprocess.TimeoutExpired:
                limit = f"{self.limits.seconds:g} seconds"
                raise ViewError(f"the statement took longer than {limit}; query less at once") from None
            finally:
                process.kill()
        line, _, rows = output.partition(b"\n")
        if not line:
            raise ViewError(
                f"the statement ended its process (status {process.returncode}), most likely by needing more than "
                f"{self.limits.megabytes} MB of memory; query less at once"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise ViewError(reply["error"])
        return reply, rows

    def close(self) -> None:
        """Ends the process that was started ahead."""
        with self._lock:
            if self._spare is not None:
                self._spare.kill()
                self._spare.communicate()
                self._spare = None


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", str(_SANDBOX)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # but no secrets of this process
    )
