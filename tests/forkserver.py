"""Starts the Python processes that Spark starts on the driver as forks of one that has imported what they need.

A stream has such a process for each operator with state and for each Python source, at each start; most of a second of
each goes into imports. `tests/worker-python` hands them over to this server, by `tests/forkclient.py`, if the JVM has
FORK_SERVER in its environment. With FULL each is a process of its own, as it is for users.

A fork has the standard files, environment and directory of the client; it ends with the client, and the client ends
with its exit status.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

FORK_SERVER: Final = "HEADRACE_TEST_FORK_SERVER"
"""The variable with the path of the server's socket."""

_IMPORTED: Final = (
    "pandas",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.worker.plan_data_source_read",
    "headrace.engine.connectors.topicdatasource",
    "headrace.engine.stream.programs",
    "headrace.engine.stream.shards",
)


@contextmanager
def running() -> Iterator[str]:
    """Yields the path of the socket of a server, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="headrace-forks-") as folder:
        path = f"{folder}/socket"
        with subprocess.Popen(
            [sys.executable, __file__, path], stdin=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": "0"}
        ) as server:
            try:
                yield path
            finally:
                assert server.stdin is not None
                server.stdin.close()  # then it ends its forks, and itself


def serve(path: str) -> None:
    """Serves forks until standard input ends."""
    for name in _IMPORTED:
        importlib.import_module(name)
    for name in _IMPORTED:
        if name.startswith("pyspark."):  # or Python would warn of a module that runs though it is imported
            del sys.modules[name]
    own = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    base = [each for each in sys.path if each not in (*own, os.path.dirname(os.path.abspath(__file__)))]
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(path)
        listening.listen(64)
        forks: dict[socket.socket, int] = {}  # by the connection to its client
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == sys.stdin.fileno():
                    for process in forks.values():
                        os.kill(process, signal.SIGTERM)
                    return
                if key.fileobj is listening:
                    client, _ = listening.accept()
                    asked, files = _receive(client)
                    process = _fork() if asked else None
                    if process == 0:
                        selector.close()
                        for other in (listening, client, *forks):
                            other.close()
                        _become(asked, files, base)
                    for file in files:
                        os.close(file)
                    if process is None:
                        client.close()
                        continue
                    forks[client] = process
                    selector.register(os.pidfd_open(process), selectors.EVENT_READ, client)
                    selector.register(client, selectors.EVENT_READ, client)
                elif key.fileobj is not key.data:  # a fork has ended
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    client = key.data
                    _, status = os.waitpid(forks.pop(client), 0)
                    if client in selector.get_map():
                        selector.unregister(client)
                    with suppress(OSError), client:
                        client.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
                elif key.data in forks:  # its client has
                    selector.unregister(key.data)
                    os.kill(forks[key.data], signal.SIGTERM)


def _fork() -> int:
    with warnings.catch_warnings():
        # Of threads, which a fork loses: Arrow's allocator has one, and stops it before.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Returns what a client asks for, nothing if it has ended, and its three standard files."""
    message, files, _, _ = socket.recv_fds(client, 1 << 20, 3)
    while message and not message.endswith(b"\n"):
        more = client.recv(1 << 20)
        message = message + more if more else b""
    return json.loads(message or b"{}"), list(files)


def _become(asked: dict[str, Any], files: list[int], base: list[str]) -> None:
    """Goes on as `python -m` with a client's arguments, and ends."""
    status = 0
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(asked["environment"])
        os.chdir(asked["directory"])
        here = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        sys.path[:] = [asked["directory"], *here, *base]
        module, *sys.argv[1:] = asked["arguments"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status % 256)


if __name__ == "__main__":
    serve(sys.argv[1])
