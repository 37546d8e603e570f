"""Work that blocks, off the event loop: so many at once, each waited for so long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.server.http.refusals import Refused
from headrace.server.limits import Gate

T = TypeVar("T")


class Worker:
    """Threads for one kind of work. What is given up by its client goes on, and counts until it ends."""

    def __init__(self, what: str, threads: int, most: int, seconds: float) -> None:
        self.gate, self.seconds = Gate(most, what), seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"headrace-{what}")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a function."""
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
            raise Refused(503, f"this took longer than {self.seconds:g} seconds; ask for less at once") from None

    def close(self) -> None:
        """Lets what is under way end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
