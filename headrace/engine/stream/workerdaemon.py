"""Spark's daemon of Python workers, which has imported what workers need before it forks them.

`spark.python.daemon.module` names it. Spark's own daemon imports nothing, so that each new worker spends most of a
second on imports: in the first micro-batch, and whenever another one is needed. PySpark imports nothing there because
libraries may start threads, which a fork loses. Those that are imported here start none but the allocator's of Arrow
(jemalloc), which stops it before a fork. What belongs to users is imported in workers only, as it always was.
"""

from __future__ import annotations

import gc
import socket

import pandas  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark import daemon

import headrace.engine.connectors.fromfiles
import headrace.engine.stream.fromranges
import headrace.engine.stream.programs
import headrace.engine.stream.shards
import headrace.engine.worker.toparquet  # noqa: F401

_run_worker = daemon.worker


def run_worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs a worker. Where Spark has closed its socket, the task was cancelled, and there is nothing to report."""
    try:
        return _run_worker(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = run_worker
    gc.freeze()  # modules are no garbage, and a collection in a worker would copy their pages
    daemon.manager()
