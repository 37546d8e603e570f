"""Flink SQL and Bytewax, each in the environment that `make peers` has made for it below out/peers."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import IO, NamedTuple

from _nexmark.processes import cpu_seconds

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / "out" / "peers"
PYTHONS = {peer: PEERS / peer / "bin" / "python" for peer in ("flink", "bytewax")}
PROCESSES = 2

NOT_IN_FLINK = {
    "q6": "a window over the rows of an aggregate that is updated is refused",
    "q12": "a bounded run ends before its last window of processing time does",
}
NOT_IN_BYTEWAX = {
    "q4": "no timers of event time outside its windows, which are all of one length",
    "q6": "as q4",
}


class Took(NamedTuple):
    """Seconds and CPU seconds."""

    wall: float
    cpu: float


class Flink:
    """A process with a JVM that runs one query after the other; started when it is first used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log: IO[str] | None = None
        self._process: subprocess.Popen[str] | None = None

    def run(self, query: str, inputs: dict[str, str], out: Path) -> Took:
        if self._process is None:
            self._log = (self.folder / "flink.log").open("w")
            command = [str(PYTHONS["flink"]), str(HERE / "flinksql.py")]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._log, text=True)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        before = cpu_seconds(process.pid)
        print(json.dumps({"query": query, "inputs": inputs, "out": str(out)}), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"Flink ended with {process.wait()}: {_last(self.folder / 'flink.log')}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return Took(answer["seconds"], cpu_seconds(process.pid) - before)

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None and self._log is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._log.close()


class Bytewax:
    """A cluster of processes for each query."""

    def run(self, query: str, inputs: dict[str, str], out: Path) -> Took:
        folders = [f"{kind}={folder}" for kind, folder in inputs.items()]
        addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(PROCESSES))
        command = [str(PYTHONS["bytewax"]), str(HERE / "bytewaxflow.py"), query, str(out), *folders, "--"]
        pipe = subprocess.PIPE
        processes = [
            subprocess.Popen([*command, str(number), addresses], stdout=pipe, stderr=pipe, text=True)
            for number in range(PROCESSES)
        ]
        ends = [process.communicate() for process in processes]
        for process, (_, errors) in zip(processes, ends, strict=True):
            if process.returncode:
                raise RuntimeError(f"Bytewax ended with {process.returncode}: {errors.strip().splitlines()[-1:]}")
        told = [json.loads(printed.splitlines()[-1]) for printed, _ in ends]
        wall = max(each["ended"] for each in told) - min(each["began"] for each in told)
        return Took(wall, sum(each["cpu"] for each in told))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _last(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
