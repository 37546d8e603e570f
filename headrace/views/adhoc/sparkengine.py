"""Ad-hoc SQL on Spark, for data too large for DuckDB: read-only queries of given tables, whatever the statement tries.

Spark runs in a process of its own (see `sparksql.sparksandbox`), which starts with the first statement and stays. A
statement that takes too long is cancelled; if that does not help, or memory runs out, the process ends and the next
statement gets a new one. Nothing else, such as a speed layer, shares memory or a session with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headrace.views.adhoc.sandboxengine import SandboxEngine
from headrace.views.adhoc.sqlrequest import SPARK, Limits
from headrace.views.errors import ViewError

_SANDBOX: Final = Path(__file__).parents[1] / "sparksql" / "sparksandbox.py"
_START: Final = 120  # seconds for Spark to start
_GRACE: Final = 5  # seconds for a statement to be cancelled
_ENVIRONMENT: Final = ("JAVA_HOME", "PATH", "LANG", "SPARK_LOCAL_IP")  # passed on; no secrets of this process


class SparkAdHoc(SandboxEngine):
    """Runs statements, one SELECT each, one after the other. Safe for any number of threads.

    >>> import pyarrow as pa
    >>> hits = pa.table({"url": ["foo.com", "oof.com"], "n": [3, 4]})
    >>> with SparkAdHoc(master="local[1]") as adhoc:
    ...     adhoc.query("SELECT max(n) AS n FROM hits WHERE url LIKE 'foo%'", {"hits": hits}).table.to_pylist()
    [{'n': 3}]
    """

    dialect = SPARK

    def __init__(self, limits: Limits = Limits(seconds=60, megabytes=1024), *, master: str = "local[*]") -> None:
        self.limits, self.master = limits, master
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def _ask(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        """Sends a request to the process; returns the head of its reply and the rows."""
        with self._lock:
            process = self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            with _killed_after(process, self.limits.seconds + _GRACE) as late:
                try:
                    process.stdin.write(request)
                    process.stdin.flush()
                    line = process.stdout.readline()
                    reply: dict[str, Any] = json.loads(line) if line else {}
                    rows = process.stdout.read(reply.get("bytes", 0))
                except (BrokenPipeError, ValueError):
                    reply = {}
            if not reply:
                self._end()
                if late.is_set():
                    limit = f"{self.limits.seconds:g} seconds"
                    raise ViewError(f"the statement took longer than {limit}; query less at once")
                raise ViewError(
                    f"the statement ended its process, most likely by needing more than {self.limits.megabytes} MB of "
                    "memory; query less at once"
                )
        if "error" in reply:
            raise ViewError(reply["error"])
        return reply, rows

    def close(self) -> None:
        """Ends its process."""
        with self._lock:
            self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._folder = tempfile.mkdtemp(prefix="headrace-sql-")
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SANDBOX), self.master, str(self.limits.megabytes), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            start_new_session=True,  # so that its JVM can be killed with it
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_USER": "headrace",
            },
        )
        self._process = process
        assert process.stdout is not None
        with _killed_after(process, _START):
            ready = process.stdout.readline()
        if not ready:
            self._end()
            raise ViewError("Spark did not start for ad-hoc SQL; leave out `engine`, or set JAVA_HOME to a Java")
        return process

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""


@contextlib.contextmanager
def _killed_after(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Kills a process that still runs after so many seconds, and then sets the event that it yields."""
    late = threading.Event()

    def kill() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and the JVM that it has started, which are a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
