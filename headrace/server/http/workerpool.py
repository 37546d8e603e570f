"""A pool of threads for work that blocks: it limits how many calls run at once and how long a request waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.server.http.gate import Gate
from headrace.server.http.refusals import Refusal

T = TypeVar("T")


class WorkerPool:
    """Threads for one kind of work. A call whose client has given up goes on, and counts until it ends."""

    def __init__(self, noun: str, threads: int, limit: int, seconds: float) -> None:
        self.gate, self.seconds = Gate(limit, noun), seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"headrace-{noun}")

    async def run(self, work: Callable[[], T]) -> T:
        """Calls a function in a thread and returns its result; refused with 503 after the time limit."""
        self.gate.enter()
        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except BaseException:
            self.gate.leave()
            raise
        future.add_done_callback(lambda _: self.gate.leave())
        try:
            return await asyncio.wait_for(asyncio.shield(future), self.seconds)
        except TimeoutError:
            raise Refusal(503, f"this took longer than {self.seconds:g} seconds; ask for less at once") from None

    def close(self) -> None:
        """Starts no more calls; those that run may end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
