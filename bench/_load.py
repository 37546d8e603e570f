"""Load: questions over 8 connections, each after the answer to the one before, for some seconds or until it is stopped.

By wrk (Debian's package) where there is one, or else by this file as a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

CONNECTIONS = 8
WRK = shutil.which("wrk")
LONGEST = 900  # seconds


@dataclass(frozen=True)
class Load:
    """Requests a second, percentiles of their times in milliseconds, and how many got no answer, or another status."""

    requests: int
    rate: float
    p50: float
    p99: float
    errors: int


class Asking:
    """A load that is under way. With `rows`, each question is for one of so many pages; without, all are the same."""

    def __init__(self, url: str, *, seconds: int = LONGEST, rows: int = 0, seed: int = 1) -> None:
        wrk = [WRK or "", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(Path(__file__).with_name("ask.lua"))]
        own = [sys.executable, __file__, str(seconds)]
        command = [*(wrk if WRK else own), url, *(["--"] if WRK else []), str(rows), str(seed)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(self) -> Load:
        """Ends it now. Returns what came of it."""
        self._process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> Load:
        """What comes of it."""
        told, _ = self._process.communicate(timeout=LONGEST + 60)
        found = json.loads(told.strip().splitlines()[-1])
        seconds = found.pop("seconds")
        return Load(rate=found["requests"] / seconds, **found)


async def ask(address: tuple[str, int], path: str, rows: int, seed: int, times: list[float], errors: list[str]) -> None:
    """One connection."""
    chance = random.Random(seed)
    reader, writer = await asyncio.open_connection(*address)
    while True:
        asked = f"{path}?url=example.com/page/{chance.randrange(rows)}" if rows else path
        begun = time.perf_counter()
        writer.write(f"GET {asked} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            errors.append(asked)
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        times.append((time.perf_counter() - begun) * 1000)


async def main(seconds: int, url: str, rows: int, seed: int) -> None:
    parts = urlsplit(url)
    times: list[float] = []
    errors: list[str] = []
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
    address = (parts.hostname or "", parts.port or 0)
    begun = time.perf_counter()
    asks = [
        asyncio.create_task(ask(address, parts.path, rows, seed * CONNECTIONS + each, times, errors))
        for each in range(CONNECTIONS)
    ]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), seconds)
    taken = time.perf_counter() - begun
    for each in asks:
        each.cancel()
    broken = [each for each in await asyncio.gather(*asks, return_exceptions=True) if isinstance(each, Exception)]
    cuts = statistics.quantiles(times, n=100)
    told = {"requests": len(times), "seconds": taken, "p50": cuts[49], "p99": cuts[98]}
    print(json.dumps({**told, "errors": len(errors) + len(broken)}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
