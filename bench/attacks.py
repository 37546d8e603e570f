"""A server under attack: how long an honest client waits while each attack runs, against how long it waits in quiet.

    python bench/attacks.py [--quick] [--only cookies,answers,...]

The server has a process of its own, as in `headrace up`, with tokens and the page. The honest client asks one point
question after the other, a hundred a second, every tenth over a new connection. The attacker is a third process; it is
bounded in count and time, and stays on loopback. On two cores the attacker's own work takes time from the server, too.
Target for each: the 99th percentile is at most 5 times the one measured just before. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from urllib.parse import quote

from _sections import Bench, Section, Verdict, run
from _swapping import Pages, served, service
from serving import Resting

from headrace.server import Tokens
from headrace.system.served import server_process

READ, WRITE = "r" * 20, "w" * 20
TOKENS = Tokens.parse(f"read:{READ} write:{WRITE} admin:{'a' * 20}")
ROWS = 10_000
LONGEST = 60  # seconds that an attack lasts if nobody ends it
Attack = Callable[["Target"], Awaitable[None]]
_attacks: dict[str, Attack] = {}


@dataclass(frozen=True)
class Target:
    """The server, and when the attack is to be over."""

    host: str
    port: int
    until: float

    @property
    def on(self) -> bool:
        return time.monotonic() < self.until

    async def wait(self) -> None:
        """Waits until the attack is over."""
        await asyncio.sleep(max(0.0, self.until - time.monotonic()))

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port, limit=1 << 26)

    def request(self, line: str, body: bytes = b"", **headers: str) -> bytes:
        """A request as it is sent; `headers` have underscores for hyphens."""
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        length = [f"Content-Length: {len(body)}"] if body else []
        head = [f"{line} HTTP/1.1", f"Host: {self.host}:{self.port}", *lines, *length, "", ""]
        return "\r\n".join(head).encode() + body

    async def ask(self, request: bytes) -> None:
        """Sends a request and reads the answer, on a connection of its own."""
        with suppress(OSError, EOFError):
            reader, writer = await self.connect()
            try:
                writer.write(request)
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), max(self.until - time.monotonic(), 0.1))
                await reader.read(len(head))
            except (TimeoutError, asyncio.LimitOverrunError):
                pass
            finally:
                writer.close()

    async def again(self, request: bytes, at_once: int) -> None:
        """Sends a request again and again, over so many connections at once."""

        async def repeat() -> None:
            while self.on:
                await self.ask(request)

        await asyncio.gather(*(repeat() for _ in range(at_once)))


def attack(about: Attack) -> Attack:
    """Registers an attack under the name of its function."""
    _attacks[about.__name__] = about
    return about


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def statement(sql: str) -> bytes:
    return b'{"sql": "' + sql.encode() + b'"}'


@attack
async def cookies(target: Target) -> None:
    """Cookies of 30 kB full of backslashes, without a token."""
    await target.again(target.request("GET /views", Cookie='a="' + "\\" * 30_000), 4)


@attack
async def answers(target: Target) -> None:
    """Statements whose answers are of hundreds of megabytes."""
    body = statement("SELECT list_transform(range(8000), x -> true) FROM range(10000)")
    await target.again(target.request("POST /sql", body, Content_Type="application/json", **bearer(READ)), 2)


@attack
async def unread(target: Target) -> None:
    """Large answers that are asked for, over many connections, and never read."""
    body = statement("SELECT repeat(chr(65), 1000) FROM range(9000)")
    asked = target.request("POST /sql", body, Content_Type="application/json", **bearer(READ))
    pages = target.request(f"GET /views/hits?limit={ROWS}", **bearer(READ))
    writers = []
    while target.on and len(writers) < 200:
        with suppress(OSError):
            _, writer = await target.connect()
            writers.append(writer)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(asked if len(writers) % 4 == 0 else pages * 20)
        await asyncio.sleep(0.02)
    await target.wait()


@attack
async def lines(target: Target) -> None:
    """Bodies of 4 MB of short lines, of which one is bad."""
    body = b'{"ts":0}\n' * 400_000 + b'{"ts":"x"}\n'
    headers = {"Content_Type": "application/x-ndjson", **bearer(WRITE)}
    await target.again(target.request("POST /topics/visits", body, **headers), 4)


@attack
async def forms(target: Target) -> None:
    """Forms of 4 MB at /login."""
    body = b"a=b&" * 1_000_000
    await target.again(target.request("POST /login", body, Content_Type="application/x-www-form-urlencoded"), 4)


@attack
async def pages(target: Target) -> None:
    """Paths below /_nicegui/ that lead nowhere."""
    await target.again(target.request("GET /_nicegui/nowhere", **bearer(READ)), 4)


@attack
async def logins(target: Target) -> None:
    """Sessions by the thousand."""
    body = f"token={READ}".encode()
    await target.again(target.request("POST /login", body, Content_Type="application/x-www-form-urlencoded"), 4)


@attack
async def idle(target: Target) -> None:
    """1,300 connections on which nothing is asked."""
    writers = []
    for _ in range(1_300):
        with suppress(OSError):
            writers.append((await target.connect())[1])
    await target.wait()


@attack
async def heads(target: Target) -> None:
    """Heads of requests that come a byte at a time, over 200 connections."""

    async def drip() -> None:
        while target.on:
            with suppress(OSError):
                _, writer = await target.connect()
                for byte in target.request("GET /views", X="x" * 1000):
                    if not target.on or writer.transport.is_closing():
                        break
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.1)

    await asyncio.gather(*(drip() for _ in range(200)))


@attack
async def nonsense(target: Target) -> None:
    """Origins, numbers, bodies and hosts that are none."""
    asked = [
        target.request("POST /sql", b"{}", Content_Type="application/json", Origin="http://[", **bearer(READ)),
        target.request("GET /views/hits?limit=" + "9" * 5000, **bearer(READ)),
        target.request("POST /sql", '{"sql": "SELECT 1"}'.encode("utf-16"), Content_Type="application/json"),
        target.request(f"GET /views/hits?{quote('url.prefix')}={'%00' * 3000}", **bearer(READ)),
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ]
    await asyncio.gather(*(target.again(each, 1) for each in asked))


# The honest client


async def ask_honestly(target: Target) -> list[float]:
    """How many milliseconds each question took; what failed counts as what it took, and is told by a negative time."""
    times: list[float] = []
    connection = None
    number = 0
    while target.on:
        number += 1
        begun = time.perf_counter()
        try:
            if connection is None or number % 10 == 0:
                if connection is not None:
                    connection[1].close()
                connection = await target.connect()
            reader, writer = connection
            writer.write(target.request(f"GET /views/hits?url=example.com/page/{number % ROWS}", **bearer(READ)))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            fine = head.startswith(b"HTTP/1.1 200")
        except (OSError, EOFError, TimeoutError, ValueError):
            fine, connection = False, None
        took = (time.perf_counter() - begun) * 1000
        times.append(took if fine else -took)
        await asyncio.sleep(max(0.0, 0.01 - took / 1000))
    return times


def run_honestly(host: str, port: int, seconds: float) -> list[float]:
    return asyncio.run(ask_honestly(Target(host, port, time.monotonic() + seconds)))


def run_attack(name: str, host: str, port: int, begun: Event) -> None:
    begun.set()
    asyncio.run(_attacks[name](Target(host, port, time.monotonic() + LONGEST)))


def section(name: str) -> Section:
    def measure(bench: Bench) -> Iterator[Verdict]:
        seconds = 4 if bench.quick else 10
        what = served(bench.folder)
        Pages(service(what).views["hits"], ROWS)
        context = multiprocessing.get_context("spawn")
        with server_process(what, Resting(), port=0, tokens=TOKENS) as server, context.Pool(1) as client:
            host, port = "127.0.0.1", int(server.url.rpartition(":")[2])

            def honest(seconds: float) -> tuple[float, float, int]:
                """The median, the 99th percentile and the failures of an honest client."""
                times = client.apply(run_honestly, (host, port, seconds))
                taken = [abs(each) for each in times]
                return statistics.median(taken), statistics.quantiles(taken, n=100)[98], sum(each < 0 for each in times)

            honest(2)  # it warms up
            quiet = honest(seconds)
            begun = context.Event()
            attacker = context.Process(target=run_attack, args=(name, host, port, begun))
            attacker.start()
            begun.wait()
            attacked = honest(seconds)
            attacker.terminate()
            attacker.join()
        for state, (p50, p99, failures) in (("quiet", quiet), ("attacked", attacked)):
            bench.say(f"{state:9} p50 {p50:7.2f} ms   p99 {p99:8.2f} ms   {failures} failures")
        yield Verdict(f"{name}: p99", attacked[1] / quiet[1], 5, False, "see what holds the event loop or the GIL")
        yield Verdict(f"{name}: failures", attacked[2], 0, False, "see which limit refused an honest client")

    measure.__name__ = name
    return measure


if __name__ == "__main__":
    run("attacks", __doc__, *map(section, _attacks))
