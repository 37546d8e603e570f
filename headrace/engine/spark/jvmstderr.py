"""Keeps four notices of Spark off the terminal: exactly these lines, and nothing else.

The JVM writes them to its standard error before any logging is set up, or past it, so that no setting turns them off;
the daemon of Spark's own Python processes writes one there, too. A small process stands between the JVM and our
standard error and lives as long as the JVM does; run as a script, this module is that process.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Final

NOTICES: Final = (
    # Java says so of a module that Spark's launcher asks for.
    b"WARNING: Using incubator modules: jdk.incubator.vector\n",
    # Spark's planning of a stateful operator prints it, with an empty line.
    b"Starting Streaming TransformWithStateInPandas Python worker.\n\n",
    # DataSketches prints it when Spark first makes a sketch.
    b"Warning: Java versions > Java 11 can only operate in restricted mode where no off-heap operations are allowed!\n",
)

_FAREWELL: Final = ((264, "manager"), (95, "worker"))
"""Lines of PySpark's daemon. A process that plans how a topic is read has answered, and Spark has closed its socket
before it could say goodbye."""


def all_notices(pyspark: str) -> tuple[bytes, ...]:
    """Returns the notices of a Spark whose Python processes import PySpark from this directory, or archive."""
    daemon = f"{pyspark}/daemon.py"
    try:
        source = Path(daemon).read_text()
    except OSError:  # in an archive, of whose lines Python shows the numbers only
        source = ""
    frames = "".join(traceback.format_list([_frame(daemon, source, *each) for each in _FAREWELL]))
    return (
        *NOTICES,
        f"Traceback (most recent call last):\n{frames}BrokenPipeError: [Errno 32] Broken pipe\n".encode(),
    )


def _frame(path: str, source: str, line: int, function: str) -> traceback.FrameSummary:
    """Returns the call in a line, as tracebacks show it."""
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call) and each.lineno == line]
    if not calls:
        return traceback.FrameSummary(path, line, function, lookup_line=False, line="")
    return traceback.FrameSummary(
        path,
        line,
        function,
        line=source.splitlines(keepends=True)[line - 1],
        end_lineno=calls[0].end_lineno,
        colno=calls[0].col_offset,
        end_colno=calls[0].end_col_offset,
    )


class NoticeFilter:
    """Passes a stream of bytes on, without the lines that are notices.

    >>> notices = NoticeFilter()
    >>> notices.feed(b"one\\nWARNING: Using incubator") + notices.feed(b" modules: jdk.incubator.vector\\ntwo")
    b'one\\ntwo'
    """

    def __init__(self, notices: tuple[bytes, ...] = NOTICES) -> None:
        self._notices = notices
        self._waiting = b""  # the beginning of a line that may become a notice
        self._inside = False  # whether the last line that was passed on has not ended yet

    def feed(self, data: bytes) -> bytes:
        """Returns what can be passed on once these bytes have come."""
        passed, rest = b"", self._waiting + data
        while rest:
            if not self._inside:
                if notice := next((each for each in self._notices if rest.startswith(each)), None):
                    rest = rest[len(notice) :]
                    continue
                if any(each.startswith(rest) for each in self._notices):
                    break
            line, end, rest = rest.partition(b"\n")
            passed, self._inside = passed + line + end, not end
        self._waiting = rest
        return passed

    def finish(self) -> bytes:
        """Returns what was waiting, at the end of the stream."""
        waiting, self._waiting = self._waiting, b""
        return waiting


def launch_filter(pyspark: str) -> subprocess.Popen[bytes]:
    """Starts the process that a JVM's standard error is to be written to; it ends when the JVM has.

    `pyspark` is where the JVM's Python processes have PySpark from.
    """
    # In a session of its own: Ctrl-C is for the program, and what the JVM says while it ends still passes.
    command = [sys.executable, "-SE", __file__, pyspark]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def launch_gateway(conf: Any) -> Any:
    """Starts a JVM as PySpark does, with its standard error filtered."""
    from pyspark.java_gateway import launch_gateway as launch

    from headrace.engine.spark.sparkhome import archive_in, home_for

    with home_for(conf.get("spark.master", "local")) as home:
        notices = launch_filter(str(archive_in(home) / "pyspark"))
        assert notices.stdin is not None
        try:
            return launch(conf, {"stderr": notices.stdin})  # type: ignore[no-untyped-call]
        finally:
            notices.stdin.close()  # the JVM has its own copy


def main() -> None:
    notices = NoticeFilter(all_notices(sys.argv[1]))
    try:
        while data := os.read(0, 1 << 16):
            _write(notices.feed(data))
        _write(notices.finish())
    except OSError:  # nobody reads our standard error any more
        return


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(2, data) :]


if __name__ == "__main__":
    main()
