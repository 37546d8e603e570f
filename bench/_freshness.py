"""How fresh answers are: events posted to a topic of a running system, and how long until its view has them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from _sections import Bench, Verdict
from _swapping import APP

RATE, POSTS = 2_000, 20  # events and requests a second
PROBE = "example.com/probe"
_STARTING = 240  # seconds at most until the first probe is seen, and until the last one is


class Client:
    """One connection; made anew where the server has closed it, as it does with one that rests for some seconds."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def post(self, events: list[dict[str, str]], number: int) -> None:
        """Each number is taken once, also if it is sent twice."""
        once = {"Idempotency-Key": "probes", "Idempotency-Sequence": str(number)}
        body = "\n".join(map(json.dumps, events))
        self._answer("POST", "/topics/visits", body, {"Content-Type": "application/x-ndjson", **once})

    def hits(self, page: str) -> int:
        """As the view has it now, in all hours."""
        return sum(row["values"]["n"] for row in self._answer("GET", f"/views/hits?url={page}")["rows"])

    def status(self) -> Any:
        return self._answer("GET", "/status")

    def _answer(self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] = {}) -> Any:
        try:
            answer = self._sent(method, path, body, headers)
        except ConnectionError:
            self._connection.close()
            answer = self._sent(method, path, body, headers)
        told = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {told[:200]!r}")
        return json.loads(told)

    def _sent(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        self._connection.request(method, path, body, dict(headers))
        return self._connection.getresponse()


@contextmanager
def up(bench: Bench) -> Iterator[str]:
    """`headrace up`, and its address."""
    (bench.folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "headrace", "up", "app.py", "--port", "0", "--dir", "data"]
    # Its folder is where it runs: a line about a longer path would be broken in two.
    with subprocess.Popen(command, cwd=bench.folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(found[1] for line in process.stderr if (found := re.search(r"served at (\S+);", line)))
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=120)
            process.kill()


def freshness(bench: Bench) -> Iterator[Verdict]:
    warm, seconds = (10, 20) if bench.quick else (30, 60)
    with up(bench) as url:
        posted: list[float] = []  # when each probe was about to be sent
        seen: list[float] = []  # and when it was first in an answer
        over = threading.Event()
        failed: list[BaseException] = []
        thread = threading.Thread(target=_produce, args=(Client(url), posted, over, failed))
        thread.start()
        watch, now = Client(url), time.monotonic
        try:
            _watch(watch, seen, _STARTING, lambda: bool(seen or failed))
            end = now() + warm + seconds
            _watch(watch, seen, warm + seconds, lambda: bool(now() >= end or failed))
        finally:
            over.set()
            thread.join()
        if failed:
            raise failed[0]
        _watch(watch, seen, _STARTING, lambda: len(seen) == len(posted))
        view = watch.status()["views"]["hits"]
    ages = [at - sent for sent, at in zip(posted, seen, strict=True) if end - seconds <= sent < end]
    cuts = statistics.quantiles(ages, n=20)
    bench.say(
        f"{len(ages)} probes   p50 {cuts[9]:.2f} s   p95 {cuts[18]:.2f} s   longest {max(ages):.2f} s   "
        f"{len(ages) / seconds * RATE / POSTS:,.0f} events/s   micro-batches of {view['batch_seconds']} s"
    )
    yield Verdict(
        "freshness: p50, s",
        cuts[9],
        0.6,
        False,
        "half a micro-batch more than one takes; see what that spends its time on",
    )
    yield Verdict("freshness: p95, s", cuts[18], 1.5, False, "see which micro-batches are slow")


def _produce(client: Client, posted: list[float], over: threading.Event, failed: list[BaseException]) -> None:
    """So many events a second, in some requests, each with one probe; behind schedule it does not wait."""
    begun, sent = time.monotonic(), 0
    try:
        while not over.wait(max(0, begun + sent / POSTS - time.monotonic())):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            pages = [f"example.com/page/{(sent * 97 + each) % 10_000}" for each in range(RATE // POSTS - 1)]
            events = [{"user": f"u{each % 500}", "url": page, "ts": stamp} for each, page in enumerate(pages)]
            posted.append(time.monotonic())
            client.post([*events, {"user": "probe", "url": PROBE, "ts": stamp}], sent)
            sent += 1
    except BaseException as error:
        failed.append(error)


def _watch(client: Client, seen: list[float], seconds: float, done: Callable[[], bool]) -> None:
    """Notes when probes are first seen, with fifty looks a second."""
    deadline = time.monotonic() + seconds + 1
    while not done():
        if (now := time.monotonic()) > deadline:
            view = client.status()["views"]["hits"]
            state = {name: view[name] for name in ("state", "error", "batches", "batch_seconds", "lag")}
            raise RuntimeError(f"{len(seen)} probes were seen, and no more in {seconds} s; the view says {state}")
        found = client.hits(PROBE)
        seen += [time.monotonic()] * (found - len(seen))
        time.sleep(max(0, now + 0.02 - time.monotonic()))
